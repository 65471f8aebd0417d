#include "columns.h"

#include <pybind11/stl.h>
#include <structmember.h>

#include <array>
#include <bit>

namespace neuroncore {

int Names::number(const std::string& name) {
  auto [entry, added] = numbers_.try_emplace(name, static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  return entry->second;
}

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

// Where a slot of a Python class (dataclass with `slots`) lies in its objects: reading it costs a load, no look-up.
class Slot {
 public:
  Slot(const py::object& type, const char* name) {
    py::object member = type.attr(name);
    if (Py_TYPE(member.ptr()) != &PyMemberDescr_Type) throw py::type_error(std::string(name) + " is no slot");
    offset_ = reinterpret_cast<PyMemberDescrObject*>(member.ptr())->d_member->offset;
  }
  // Borrowed; the object must be of the slot's class.
  py::handle of(py::handle object) const {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + offset_);
  }
  int64_t integer(py::handle object) const { return PyLong_AsLongLong(of(object).ptr()); }

 private:
  Py_ssize_t offset_;
};

// The slots of neuroncore.isa.program's classes that are read here.
struct Classes {
  explicit Classes(const py::module_& module)
      : access(module.attr("Access")),
        instruction(module.attr("Instruction")),
        loop(module.attr("Loop")),
        wait(module.attr("Wait")),
        signal(module.attr("Signal")) {}
  py::object access, instruction, loop, wait, signal;
  Slot buffer{access, "buffer"}, dtype{access, "dtype"}, partitions{access, "partitions"}, free{access, "free"},
      offset{access, "offset"}, start_partition{access, "start_partition"},
      partition_stride{access, "partition_stride"}, steps{access, "steps"};
  Slot opcode{instruction, "opcode"}, engine{instruction, "engine"}, operands{instruction, "operands"},
      waits{instruction, "waits"}, signals{instruction, "signals"}, queue{instruction, "queue"};
  Slot loop_name{loop, "name"}, count{loop, "count"}, body{loop, "body"};
  Slot wait_semaphore{wait, "semaphore"}, wait_value{wait, "value"}, wait_steps{wait, "steps"};
  Slot signal_semaphore{signal, "semaphore"}, increment{signal, "increment"};
};

bool is(py::handle object, const py::object& type) {
  return Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(type.ptr());
}

int64_t item(py::handle pair, Py_ssize_t place) { return PyLong_AsLongLong(PyTuple_GET_ITEM(pair.ptr(), place)); }

// Numbers of Python objects by identity; the last ones asked for are found without hashing.
class Known {
 public:
  const int* find(PyObject* object) {
    Recent& recent = recent_[place(object)];
    if (recent.object == object) return &recent.number;
    auto found = numbers_.find(object);
    if (found == numbers_.end()) return nullptr;
    recent = {object, found->second};
    return &recent.number;
  }
  int add(PyObject* object, int number) {
    numbers_.emplace(object, number);
    recent_[place(object)] = {object, number};
    return number;
  }

 private:
  struct Recent {
    PyObject* object = nullptr;
    int number = 0;
  };
  static size_t place(PyObject* object) { return (reinterpret_cast<uintptr_t>(object) >> 4) % 64; }

  std::array<Recent, 64> recent_{};
  std::unordered_map<PyObject*, int> numbers_;
};

// Reads the Python objects of one program.
class Reader {
 public:
  Reader(const py::dict& places, const py::dict& sizes, const py::dict& roles)
      : sizes_(sizes), roles_(roles), class_(py::module_::import("neuroncore.isa.program")) {
    for (auto [name, place] : places) {
      auto fields = py::reinterpret_borrow<py::tuple>(place);
      Buffer buffer{fields[0].cast<int>(),     fields[1].cast<bool>(),    fields[2].cast<int64_t>(),
                    fields[3].cast<int64_t>(), fields[4].cast<int64_t>(), fields[5].cast<int64_t>(),
                    fields[6].cast<bool>(),    fields[7].cast<int64_t>()};
      text.spaces = std::max(text.spaces, buffer.space + 1);
      memories_.push_back(fields[8].cast<int>());
      buffers_.add(name.ptr(), static_cast<int>(text.buffers.size()));
      by_name_[py::str(name)] = static_cast<int>(text.buffers.size());
      text.buffers.push_back(buffer);
    }
    text.written.assign(text.buffers.size(), false);
  }

  std::vector<Item> body(py::handle items, int64_t times) {
    std::vector<Item> result;
    result.reserve(PyTuple_GET_SIZE(items.ptr()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
      py::handle item = PyTuple_GET_ITEM(items.ptr(), i);
      Item made;
      if (is(item, class_.loop)) {
        made.loop = text.loops++;
        made.count = class_.count.integer(item);
        loops_.emplace_back(class_.loop_name.of(item).cast<std::string>(), made.loop);
        made.body = body(class_.body.of(item), times * made.count);
        loops_.pop_back();
      } else {
        if (!is(item, class_.instruction)) throw py::type_error("a program's body holds instructions and loops");
        made.text = static_cast<int>(text.instructions.size());
        text.instructions.push_back(instruction(item));
        text.executed += times;
      }
      result.push_back(std::move(made));
    }
    return result;
  }

  Text text;

 private:
  Instruction instruction(py::handle item) {
    Instruction made;
    py::handle engine = class_.engine.of(item), queue = class_.queue.of(item), opcode = class_.opcode.of(item);
    made.dma = PyObject_IsTrue(queue.ptr());
    made.engine = number(text.engines, engine_numbers_, engine);
    made.stream = number(text.streams, stream_numbers_, made.dma ? queue : engine);
    made.tensor_engine = PyUnicode_CompareWithASCIIString(engine.ptr(), "Tensor") == 0;
    py::handle operands = class_.operands.of(item);
    py::handle roles = PyDict_GetItem(roles_.ptr(), opcode.ptr());
    if (!roles) throw py::key_error(opcode.cast<std::string>());
    bool accumulate = true, has_index = false;
    py::handle indexed;
    Py_ssize_t count = PyTuple_GET_SIZE(operands.ptr());
    auto name_of = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(PyTuple_GET_ITEM(operands.ptr(), i), 0); };
    auto value_of = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(PyTuple_GET_ITEM(operands.ptr(), i), 1); };
    for (Py_ssize_t i = 0; i < count; ++i) {  // plain attributes that decide what an access does
      PyObject *name = name_of(i), *value = value_of(i);
      if (PyUnicode_READ_CHAR(name, 0) != 'a' && PyUnicode_READ_CHAR(name, 0) != 'i') continue;
      if (value == Py_False && PyUnicode_CompareWithASCIIString(name, "accumulate") == 0) accumulate = false;
      if (value != Py_None && PyUnicode_CompareWithASCIIString(name, "index") == 0) has_index = true;
      if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(name, "index_side") == 0) indexed = value;
    }
    made.accesses.reserve(count);
    key_.clear();
    key_.push_back(name_key(opcode));
    key_.push_back(made.engine);
    for (Py_ssize_t i = 0; i < count; ++i) {
      py::handle name = name_of(i), value = value_of(i);
      key_.push_back(name_key(name));
      if (!is(value, class_.access)) {
        value_key(value);
        continue;
      }
      PyObject* found = PyDict_GetItem(roles.ptr(), name.ptr());
      int role = found ? static_cast<int>(PyLong_AsLong(found)) : 1;
      Access access = this->access(value, made.dma);
      access.reads = role == 1 || (role == 3 && accumulate);
      access.writes = role != 1;
      access.indexed = has_index && indexed && PyUnicode_Compare(name.ptr(), indexed.ptr()) == 0;
      if (access.writes) text.written[access.buffer] = true;
      made.accesses.push_back(std::move(access));
    }
    made.kind = kinds_.try_emplace(key_, static_cast<int>(kinds_.size())).first->second;
    for (py::handle wait : py::reinterpret_borrow<py::tuple>(class_.waits.of(item))) {
      made.waits.push_back({text.semaphores.number(class_.wait_semaphore.of(wait).cast<std::string>()),
                            class_.wait_value.integer(wait), steps(class_.wait_steps.of(wait))});
    }
    for (py::handle signal : py::reinterpret_borrow<py::tuple>(class_.signals.of(item))) {
      made.signals.push_back({text.semaphores.number(class_.signal_semaphore.of(signal).cast<std::string>()),
                              class_.increment.integer(signal)});
    }
    return made;
  }

  // The number of a name, looked up by the Python string's identity first.
  int number(Names& names, Known& known, py::handle name) {
    if (const int* found = known.find(name.ptr())) return *found;
    kept_.push_back(py::reinterpret_borrow<py::object>(name));
    return known.add(name.ptr(), names.number(name.cast<std::string>()));
  }

  int64_t name_key(py::handle name) { return number(words_, word_numbers_, name); }

  // A plain attribute as part of what decides an instruction's price. Values that look different are at worst priced
  // twice.
  void value_key(py::handle value) {
    if (PyFloat_CheckExact(value.ptr())) {
      key_.push_back(-1);
      key_.push_back(std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value.ptr())));
    } else if (PyLong_CheckExact(value.ptr())) {
      int overflow = 0;
      int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
      key_.push_back(overflow ? -3 : -2);
      key_.push_back(overflow ? reinterpret_cast<int64_t>(value.ptr()) : number);
    } else if (PyUnicode_CheckExact(value.ptr())) {
      key_.push_back(-4);
      key_.push_back(name_key(value));
    } else {
      key_.push_back(-3);
      key_.push_back(reinterpret_cast<int64_t>(value.ptr()));
    }
  }

  Access access(py::handle value, bool dma) {
    Access made{};
    py::handle name = class_.buffer.of(value), dtype = class_.dtype.of(value), free = class_.free.of(value);
    if (const int* known = buffers_.find(name.ptr())) {
      made.buffer = *known;
    } else {  // an equal name that is another object
      auto found = by_name_.find(name.cast<std::string>());
      if (found == by_name_.end()) throw py::key_error(name.cast<std::string>());
      kept_.push_back(py::reinterpret_borrow<py::object>(name));
      made.buffer = buffers_.add(name.ptr(), found->second);
    }
    const Buffer& buffer = text.buffers[made.buffer];
    if (const int* known = size_numbers_.find(dtype.ptr())) {
      made.bytes = *known;
    } else {
      PyObject* size = PyDict_GetItem(sizes_.ptr(), dtype.ptr());
      if (!size) throw py::key_error(dtype.cast<std::string>());
      kept_.push_back(py::reinterpret_borrow<py::object>(dtype));
      made.bytes = size_numbers_.add(dtype.ptr(), static_cast<int>(PyLong_AsLong(size)));
    }
    made.offset = class_.offset.integer(value);
    made.partitions = class_.partitions.integer(value);
    made.start_partition = class_.start_partition.integer(value);
    made.steps = steps(class_.steps.of(value));
    made.rectangle = buffer.tensor && made.bytes == buffer.element_bytes;
    auto extend = [&](int64_t stride, int64_t size) {
      int64_t reach = stride * (size - 1);
      (reach < 0 ? made.low : made.high) += reach;
      if (reach < 0) made.rectangle = false;
      if (!buffer.tensor) return;
      if (stride % buffer.width == 0) {
        made.rows += floor_div(reach, buffer.width);
      } else {
        made.columns += reach;
      }
    };
    Py_ssize_t dimensions = PyTuple_GET_SIZE(free.ptr());
    // Prices depend on the memory an operand lies in; a DMA's also on which tensor it is.
    key_.insert(key_.end(), {-5, name_key(dtype), made.partitions, dma ? made.buffer : memories_[made.buffer],
                             static_cast<int64_t>(dimensions)});
    extend(class_.partition_stride.integer(value), made.partitions);
    for (Py_ssize_t i = 0; i < dimensions; ++i) {
      py::handle pair = PyTuple_GET_ITEM(free.ptr(), i);
      int64_t stride = item(pair, 0), count = item(pair, 1);
      extend(stride, count);
      key_.insert(key_.end(), {stride, count});
    }
    return made;
  }

  Steps steps(py::handle given) {
    Steps result;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given.ptr()); ++i) {
      py::handle both = PyTuple_GET_ITEM(given.ptr(), i), name = PyTuple_GET_ITEM(both.ptr(), 0);
      auto text = name.cast<std::string>();
      auto found = loops_.rbegin();
      while (found != loops_.rend() && found->first != text) ++found;
      if (found == loops_.rend()) throw py::key_error(text);
      result.emplace_back(found->second, item(both, 1));
    }
    return result;
  }

  struct KeyHash {
    size_t operator()(const std::vector<int64_t>& key) const {
      uint64_t hash = key.size();
      for (int64_t part : key) hash = (hash ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15u + (hash >> 29);
      return hash;
    }
  };

  const py::dict& sizes_;
  const py::dict& roles_;
  Classes class_;
  Known buffers_, engine_numbers_, stream_numbers_, word_numbers_, size_numbers_;
  std::unordered_map<std::string, int> by_name_;
  std::unordered_map<std::vector<int64_t>, int, KeyHash> kinds_;
  std::vector<int64_t> key_;
  std::vector<int> memories_;
  Names words_;
  std::vector<py::object> kept_;
  std::vector<std::pair<std::string, int>> loops_;
};

}  // namespace

Text read_text(const py::tuple& body, const py::dict& places, const py::dict& sizes, const py::dict& roles) {
  Reader reader(places, sizes, roles);
  reader.text.body = reader.body(body, 1);
  if (PyErr_Occurred()) throw py::error_already_set();  // a number that is none, or beyond 64 bits
  return std::move(reader.text);
}

py::dict expand(const py::tuple& body, const py::dict& places, const py::dict& sizes, const py::dict& roles,
                bool derive, int64_t dma_increment) {
  Text text = read_text(body, places, sizes, roles);
  std::vector<int32_t> index, kind, wait_semaphore, signal_semaphore, signal_start{0};
  std::vector<int64_t> wait_start{0}, wait_value, signal_increment;
  index.reserve(text.executed);
  wait_start.reserve(text.executed + 1);
  {
    py::gil_scoped_release release;
    std::vector<int64_t> indices(text.loops, 0);
    auto visit = [&](int number, const std::vector<int64_t>& at) {
      index.push_back(number);
      if (derive) return;
      for (const Wait& wait : text.instructions[number].waits) {
        wait_semaphore.push_back(wait.semaphore);
        wait_value.push_back(wait.value + advance(wait.steps, at));
      }
      wait_start.push_back(static_cast<int64_t>(wait_semaphore.size()));
    };
    walk(text.body, indices, visit);
    if (derive) derive_waits(text, dma_increment, wait_start, wait_semaphore, wait_value);
  }
  for (const Instruction& instruction : text.instructions) {
    kind.push_back(instruction.kind);
    if (derive) {
      signal_semaphore.push_back(instruction.stream);
      signal_increment.push_back(instruction.dma ? dma_increment : 1);
    } else {
      for (const Signal& signal : instruction.signals) {
        signal_semaphore.push_back(signal.semaphore);
        signal_increment.push_back(signal.increment);
      }
    }
    signal_start.push_back(static_cast<int32_t>(signal_semaphore.size()));
  }
  py::dict result;
  result["index"] = to_array(index);
  result["kind"] = to_array(kind);
  result["semaphores"] = py::cast(derive ? text.streams.all() : text.semaphores.all());
  result["wait_start"] = to_array(wait_start);
  result["wait_semaphore"] = to_array(wait_semaphore);
  result["wait_value"] = to_array(wait_value);
  result["signal_start"] = to_array(signal_start);
  result["signal_semaphore"] = to_array(signal_semaphore);
  result["signal_increment"] = to_array(signal_increment);
  return result;
}

}  // namespace neuroncore
