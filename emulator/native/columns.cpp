#include "columns.h"

#include <pybind11/stl.h>

namespace neuroncore {

int Names::number(const std::string& name) {
  auto [entry, added] = numbers_.try_emplace(name, static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  return entry->second;
}

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

// An attribute of a Python object; each name becomes a Python string only once.
py::object attribute(py::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (!value) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

#define NAME(text)                                                  \
  ([] {                                                             \
    static PyObject* const name = PyUnicode_InternFromString(text); \
    return name;                                                    \
  }())

int64_t integer(py::handle object, PyObject* name) { return PyLong_AsLongLong(attribute(object, name).ptr()); }

int64_t item(py::handle pair, Py_ssize_t place) { return PyLong_AsLongLong(PyTuple_GET_ITEM(pair.ptr(), place)); }

// Reads the Python objects of one program.
class Reader {
 public:
  Reader(const py::dict& places, const py::dict& sizes, const py::dict& roles)
      : sizes_(sizes), roles_(roles), module_(py::module_::import("neuroncore.isa.program")) {
    access_ = module_.attr("Access");
    loop_ = module_.attr("Loop");
    for (auto [name, place] : places) {
      auto fields = py::reinterpret_borrow<py::tuple>(place);
      Buffer buffer{fields[0].cast<int>(),     fields[1].cast<bool>(),    fields[2].cast<int64_t>(),
                    fields[3].cast<int64_t>(), fields[4].cast<int64_t>(), fields[5].cast<int64_t>(),
                    fields[6].cast<bool>(),    fields[7].cast<int64_t>()};
      text.spaces = std::max(text.spaces, buffer.space + 1);
      buffers_[name.ptr()] = static_cast<int>(text.buffers.size());
      by_name_[py::str(name)] = static_cast<int>(text.buffers.size());
      text.buffers.push_back(buffer);
    }
    text.written.assign(text.buffers.size(), false);
  }

  std::vector<Item> body(const py::tuple& items, int64_t times) {
    std::vector<Item> result;
    result.reserve(items.size());
    for (py::handle item : items) {
      Item made;
      if (Py_TYPE(item.ptr()) == reinterpret_cast<PyTypeObject*>(loop_.ptr())) {
        made.loop = text.loops++;
        made.count = attribute(item, NAME("count")).cast<int64_t>();
        loops_.emplace_back(attribute(item, NAME("name")).cast<std::string>(), made.loop);
        made.body = body(attribute(item, NAME("body")).cast<py::tuple>(), times * made.count);
        loops_.pop_back();
      } else {
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
    py::object engine = attribute(item, NAME("engine")), queue = attribute(item, NAME("queue"));
    made.dma = PyObject_IsTrue(queue.ptr());
    made.engine = number(text.engines, engine_numbers_, engine);
    made.stream = number(text.streams, stream_numbers_, made.dma ? queue : engine);
    made.tensor_engine = PyUnicode_CompareWithASCIIString(engine.ptr(), "Tensor") == 0;
    auto operands = py::reinterpret_borrow<py::tuple>(attribute(item, NAME("operands")));
    py::object roles = roles_[attribute(item, NAME("opcode"))];
    bool accumulate = true;
    std::string indexed;
    for (py::handle pair : operands) {  // plain attributes that decide what an access does
      PyObject* name = PyTuple_GET_ITEM(pair.ptr(), 0);
      PyObject* value = PyTuple_GET_ITEM(pair.ptr(), 1);
      if (value == Py_False && PyUnicode_CompareWithASCIIString(name, "accumulate") == 0) accumulate = false;
      if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(name, "index_side") == 0) {
        indexed = py::handle(value).cast<std::string>();
      }
    }
    bool has_index = false;
    for (py::handle pair : operands) {
      py::handle name = PyTuple_GET_ITEM(pair.ptr(), 0), value = PyTuple_GET_ITEM(pair.ptr(), 1);
      if (!value.is_none() && PyUnicode_CompareWithASCIIString(name.ptr(), "index") == 0) has_index = true;
    }
    for (py::handle pair : operands) {
      py::handle name = PyTuple_GET_ITEM(pair.ptr(), 0), value = PyTuple_GET_ITEM(pair.ptr(), 1);
      if (Py_TYPE(value.ptr()) != reinterpret_cast<PyTypeObject*>(access_.ptr())) continue;
      PyObject* found = PyDict_GetItem(roles.ptr(), name.ptr());
      int role = found ? static_cast<int>(PyLong_AsLong(found)) : 1;
      Access access = this->access(value);
      access.reads = role == 1 || (role == 3 && accumulate);
      access.writes = role != 1;
      access.indexed =
          has_index && !indexed.empty() && PyUnicode_CompareWithASCIIString(name.ptr(), indexed.c_str()) == 0;
      if (access.writes) text.written[access.buffer] = true;
      made.accesses.push_back(std::move(access));
    }
    for (py::handle wait : attribute(item, NAME("waits")).cast<py::tuple>()) {
      made.waits.push_back({text.semaphores.number(attribute(wait, NAME("semaphore")).cast<std::string>()),
                            attribute(wait, NAME("value")).cast<int64_t>(), steps(attribute(wait, NAME("steps")))});
    }
    for (py::handle signal : attribute(item, NAME("signals")).cast<py::tuple>()) {
      made.signals.push_back({text.semaphores.number(attribute(signal, NAME("semaphore")).cast<std::string>()),
                              attribute(signal, NAME("increment")).cast<int64_t>()});
    }
    return made;
  }

  // The number of a name, looked up by the Python string's identity first.
  int number(Names& names, std::unordered_map<PyObject*, int>& known, const py::object& name) {
    auto found = known.find(name.ptr());
    if (found != known.end()) return found->second;
    kept_.push_back(name);
    return known.emplace(name.ptr(), names.number(name.cast<std::string>())).first->second;
  }

  Access access(py::handle value) {
    Access made{};
    py::object name = attribute(value, NAME("buffer"));
    auto known = buffers_.find(name.ptr());
    if (known == buffers_.end()) {  // an equal name that is another object
      auto found = by_name_.find(name.cast<std::string>());
      if (found == by_name_.end()) throw py::key_error(name.cast<std::string>());
      kept_.push_back(name);
      known = buffers_.emplace(name.ptr(), found->second).first;
    }
    made.buffer = known->second;
    const Buffer& buffer = text.buffers[made.buffer];
    made.bytes = sizes_[attribute(value, NAME("dtype"))].cast<int64_t>();
    made.offset = integer(value, NAME("offset"));
    made.partitions = integer(value, NAME("partitions"));
    made.start_partition = integer(value, NAME("start_partition"));
    made.steps = steps(attribute(value, NAME("steps")));
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
    extend(integer(value, NAME("partition_stride")), made.partitions);
    for (py::handle pair : py::reinterpret_borrow<py::tuple>(attribute(value, NAME("free")))) {
      extend(item(pair, 0), item(pair, 1));
    }
    return made;
  }

  Steps steps(const py::object& given) {
    Steps result;
    for (py::handle pair : given) {
      auto both = py::reinterpret_borrow<py::tuple>(pair);
      auto name = both[0].cast<std::string>();
      auto found = loops_.rbegin();
      while (found != loops_.rend() && found->first != name) ++found;
      if (found == loops_.rend()) throw py::key_error(name);
      result.emplace_back(found->second, both[1].cast<int64_t>());
    }
    return result;
  }

  const py::dict& sizes_;
  const py::dict& roles_;
  py::module_ module_;
  py::object access_, loop_;
  std::unordered_map<PyObject*, int> buffers_, engine_numbers_, stream_numbers_;
  std::unordered_map<std::string, int> by_name_;
  std::vector<py::object> kept_;
  std::vector<std::pair<std::string, int>> loops_;
};

}  // namespace

Text read_text(const py::tuple& body, const py::dict& places, const py::dict& sizes, const py::dict& roles) {
  Reader reader(places, sizes, roles);
  reader.text.body = reader.body(body, 1);
  return std::move(reader.text);
}

py::dict expand(const py::tuple& body, const py::dict& places, const py::dict& sizes, const py::dict& roles,
                bool derive, int64_t dma_increment) {
  Text text = read_text(body, places, sizes, roles);
  std::vector<int32_t> index, wait_semaphore, signal_semaphore, signal_start{0};
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
