// A program's text (instructions and loops) as plain structures, read once from the Python objects of
// neuroncore/isa/program.py, and its walk in execution order.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace neuroncore {

namespace py = pybind11;

// Affine terms: (number of an enclosing loop, what each of its iterations adds).
using Steps = std::vector<std::pair<int, int64_t>>;

// Where a buffer lies, as neuroncore/isa/columns.py describes it.
struct Buffer {
  int space;              // memory space: SBUF, PSUM, or a tensor of its own
  bool tensor;            // in HBM
  int64_t base;           // tile: byte address in each partition
  int64_t first;          // tile: first partition
  int64_t element_bytes;  // tensor: bytes of an element of its own dtype
  int64_t width;          // tensor: elements of its last dimension
  bool flat;              // tensor: one row
  int64_t bucket;         // rows (or bytes) per bucket of the records of its space
};

struct Access {
  int buffer;
  int64_t bytes;   // of an element
  int64_t offset;  // first element, in iteration 0
  int64_t partitions;
  int64_t start_partition;
  int64_t low, high;      // reach below and above the offset, in elements
  bool rectangle;         // stays within the tensor's columns unless it starts too far to the right
  int64_t rows, columns;  // reach of that rectangle
  bool reads, writes, indexed;
  Steps steps;
};

struct Wait {
  int semaphore;
  int64_t value;
  Steps steps;
};

struct Signal {
  int semaphore;
  int64_t increment;
};

struct Instruction {
  int engine, stream;
  int kind;  // instructions of equal kind have equal prices
  bool dma, tensor_engine;
  std::vector<Access> accesses;
  std::vector<Wait> waits;
  std::vector<Signal> signals;
};

// A node of the program's body: an instruction (its number in the text) or a loop.
struct Item {
  int text = -1;
  int loop = -1;
  int64_t count = 0;
  std::vector<Item> body;
};

// Names in the order of their first appearance.
class Names {
 public:
  int number(const std::string& name);
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> names_;
};

struct Text {
  std::vector<Instruction> instructions;
  std::vector<Item> body;
  std::vector<Buffer> buffers;
  std::vector<bool> written;  // per buffer: some instruction writes it
  Names engines, streams, semaphores;
  int spaces = 0, loops = 0;
  int64_t executed = 0;  // instructions, loops unrolled
};

// Reads a program's body. `places`: buffer name -> tuple of `Buffer`'s fields; `sizes`: dtype -> bytes; `roles`:
// opcode -> operand -> 1 reads, 2 writes, 3 both.
Text read_text(const py::tuple& body, const py::dict& places, const py::dict& sizes, const py::dict& roles);

// Calls `visit(text number, loop indices)` for every executed instruction, in program order.
template <typename Visit>
void walk(const std::vector<Item>& body, std::vector<int64_t>& indices, Visit& visit) {
  for (const Item& item : body) {
    if (item.text >= 0) {
      visit(item.text, indices);
      continue;
    }
    for (int64_t i = 0; i < item.count; ++i) {
      indices[item.loop] = i;
      walk(item.body, indices, visit);
    }
  }
}

inline int64_t advance(const Steps& steps, const std::vector<int64_t>& indices) {
  int64_t sum = 0;
  for (const auto& [loop, step] : steps) sum += step * indices[loop];
  return sum;
}

template <typename T>
py::array_t<T> to_array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

// The executed instructions as arrays, with their waits and signals as written (`derive` false) or as their data
// dependences need them.
py::dict expand(const py::tuple& body, const py::dict& places, const py::dict& sizes, const py::dict& roles,
                bool derive, int64_t dma_increment);

// Waits as data dependences need them: the algorithm of neuroncore/isa/synchronize.py.
void derive_waits(const Text& text, int64_t dma_increment, std::vector<int64_t>& start, std::vector<int32_t>& semaphore,
                  std::vector<int64_t>& value);

// Plays the streams against the clock: the algorithm of neuroncore/timing/play.py.
py::dict play(const py::dict& columns, const py::dict& costs, const py::dict& rates);

}  // namespace neuroncore
