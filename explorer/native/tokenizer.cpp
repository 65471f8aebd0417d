// Trace events in strict JSON → typed buffers. The optional fast form of readers/pieces.py: parse_piece.
//
// It accepts less than the plain parser and never mends anything: at the first thing out of the ordinary it answers
// None, and the plain parser gets the same text. What it does accept it must read exactly alike; tests compare the two.
//
// The text lies in memory of this process that ends in zeros. So no other process can change it under our feet, every
// loop ends at a zero at the latest (a zero is legal nowhere in JSON), and whole words may be read without asking where
// the text ends. The way of a text: `EventReader` (events.h) scans it (scanner.h) or finds it alike to an earlier one
// (shapes.h) → `Columns` (columns.h) → buffers for Python, here.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "columns.h"
#include "events.h"
#include "scanner.h"
#include "text.h"

namespace {

using namespace tokenizer;

constexpr int kVersion = 3;            // as `_VERSION` in readers/native.py: of what goes in and comes out
constexpr size_t kMaxText = 1u << 30;  // offsets stay far below 2^31

// A copy of a text that ends in zeros, in memory that this thread keeps.
const uint8_t* padded(const uint8_t* given, size_t size) {
  thread_local Scratch scratch;
  uint8_t* text = scratch.take(size + kPadding);
  if (size) std::memcpy(text, given, size);
  std::memset(text + size, 0, kPadding);
  return text;
}

uint64_t new_seed() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return static_cast<uint64_t>(now) ^ reinterpret_cast<uintptr_t>(&now);
}

// What `tokenize` gives, once it is Python's turn again.
struct Answer {
  Finished columns;
  std::array<std::vector<Block>, kLabels> texts;
  std::vector<std::pair<Odd, Block>> odd;
  int32_t rows;
  bool sliced;
};

// Everything that needs no interpreter; null when the plain parser has to read the text, which ends in `kPadding`
// zeros.
std::unique_ptr<Answer> read(const uint8_t* text, size_t size, bool sliced) {
  thread_local std::array<Scratch, 2> scratch;
  thread_local std::unique_ptr<Columns> kept;
  const uint64_t seed = new_seed();
  std::unique_ptr<Columns> columns = std::move(kept);
  if (columns)
    columns->clear(seed);
  else
    columns.reset(new Columns(seed));
  columns->text = text;
  columns->sliced = sliced;
  columns->args.start(scratch[0].take(size + 1));
  columns->ids.start(scratch[1].take(size + 1));
  if (!EventReader(text, size, seed, *columns).events()) return nullptr;
  std::unique_ptr<Answer> answer(new Answer{Finished(*columns), {}, {}, columns->rows, columns->sliced});
  for (size_t i = 0; i < kLabels; ++i)
    for (const Text one : columns->distinct[i].texts()) answer->texts[i].push_back(copied(one.data, one.size));
  for (const Odd& one : columns->odd) answer->odd.push_back({one, copied(one.text.data, one.text.size)});
  if (static_cast<size_t>(columns->rows) * sizeof(Row) <= kKept) kept = std::move(columns);
  return answer;
}

// Of the arguments of many events the values of some keys, as JSON texts back to back. False as above.
bool read_members(const uint8_t* data, const int32_t* offsets, size_t count, const std::vector<Text>& keys,
                  std::vector<std::pair<Block, Block>>& columns) {
  thread_local std::vector<Scratch> scratch;
  const auto size = static_cast<size_t>(offsets[count] - offsets[0]);
  const uint8_t* text = padded(data + offsets[0], size);
  scratch.resize(std::max(scratch.size(), keys.size()));
  std::vector<Joined> joined(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) joined[i].start(scratch[i].take(size + 1));
  std::vector<Text> found(keys.size());
  for (size_t row = 0; row < count; ++row) {
    const auto begin = static_cast<size_t>(offsets[row] - offsets[0]);
    const auto length = static_cast<size_t>(offsets[row + 1] - offsets[row]);
    std::fill(found.begin(), found.end(), Text{text, 0});
    if (length && !Scanner(text + begin, length).members(keys, found.data())) return false;
    for (size_t i = 0; i < keys.size(); ++i) joined[i].add(found[i]);
  }
  for (const Joined& one : joined)
    columns.push_back({copied(one.offsets.data(), one.offsets.size()), copied(one.data, one.size)});
  return true;
}

// Memory of ours as a Python object with the buffer protocol; goes back to `Blocks` with it.
struct Buffer {
  PyObject_HEAD Block* block;
};

PyTypeObject* buffer_type = nullptr;

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Block* block = reinterpret_cast<Buffer*>(self)->block;
  return PyBuffer_FillInfo(view, self, block->data.get(), static_cast<Py_ssize_t>(block->size), 0, flags);
}

void free_buffer(PyObject* self) {
  Block* block = reinterpret_cast<Buffer*>(self)->block;
  if (block) Blocks::all().give(std::move(*block));
  delete block;
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

Py_ssize_t buffer_length(PyObject* self) {
  return static_cast<Py_ssize_t>(reinterpret_cast<Buffer*>(self)->block->size);
}

PyType_Slot buffer_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(free_buffer)},
                              {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_sq_length, reinterpret_cast<void*>(buffer_length)},
                              {0, nullptr}};
PyType_Spec buffer_spec = {"neuronscope.readers._tokenizer.Buffer", sizeof(Buffer), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, buffer_slots};

PyObject* buffer_of(Block block) {
  auto* made = PyObject_New(Buffer, buffer_type);
  if (!made) return nullptr;
  made->block = new (std::nothrow) Block(std::move(block));
  if (!made->block) {
    Py_DECREF(made);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(made);
}

PyObject* bytes_of(const Block& block) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(block.data.get()),
                                   static_cast<Py_ssize_t>(block.size));
}

// A list of what `make` gives for each item.
template <class Items, class Make>
PyObject* list_of(Items& items, Make make) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; list && i < items.size(); ++i) {
    PyObject* item = make(items[i]);
    if (!item || PyList_SetItem(list, static_cast<Py_ssize_t>(i), item) < 0) Py_CLEAR(list);
  }
  return list;
}

// The answer as a dict; see `tokenize` below.
PyObject* objects_of(Answer& answer) {
  PyObject* found = PyDict_New();
  auto put = [&found](const char* name, PyObject* value) {
    if (found && (!value || PyDict_SetItemString(found, name, value) < 0)) Py_CLEAR(found);
    Py_XDECREF(value);
  };
  Finished& columns = answer.columns;
  put("rows", PyLong_FromLong(answer.rows));
  constexpr const char* kNames[] = {"ph", "cat", "name", "pid", "tid"};
  for (size_t i = 0; i < kLabels; ++i)
    put(kNames[i], Py_BuildValue("(NN)", buffer_of(std::move(columns.codes[i])), list_of(answer.texts[i], bytes_of)));
  put("id", Py_BuildValue("(NN)", buffer_of(std::move(columns.id_offsets)), buffer_of(std::move(columns.ids))));
  put("args", Py_BuildValue("(NN)", buffer_of(std::move(columns.arg_offsets)),
                            answer.sliced ? Py_NewRef(Py_None) : buffer_of(std::move(columns.args))));
  put("ts", Py_BuildValue("(NN)", buffer_of(std::move(columns.ts)), buffer_of(std::move(columns.has_ts))));
  put("dur", Py_BuildValue("(NN)", buffer_of(std::move(columns.dur)), buffer_of(std::move(columns.has_dur))));
  put("numbers", list_of(columns.numbers, [](Block& block) { return buffer_of(std::move(block)); }));
  put("odd", list_of(answer.odd, [](const std::pair<Odd, Block>& one) {
        return Py_BuildValue("(iiN)", one.first.column, one.first.row, bytes_of(one.second));
      }));
  return found;
}

PyDoc_STRVAR(
    tokenize_doc,
    "tokenize(text, padding=0, sliced=0, /)\n--\n\n"
    "Events separated by commas → buffers; None when the plain parser has to read the text. The last `padding` bytes\n"
    "of the text do not belong to it; if they are 64 zeros or more, it is read where it is and must not change.\n\n"
    "A dict: rows, their number; ph, cat, name (contents of the strings), pid, tid (JSON texts) as (codes, distinct\n"
    "texts); id, args as (int32 offsets, JSON texts back to back); ts, dur as (ns, int8 valid); numbers: values per "
    "id\n"
    "key, empty where no event has it; odd: (column, row, JSON text) of times (0 ts, 1 dur) and ids (2 + key) that "
    "are\n"
    "not in plain digits. With `sliced` args may be (begin and end of each in the text, None). Whole numbers are of "
    "the fewest bytes that hold them, ts of 8. The interpreter's lock is\n"
    "released while it reads.");

PyObject* tokenize(PyObject*, PyObject* arguments) {
  Py_buffer view;
  Py_ssize_t padding = 0;
  int sliced = 0;
  if (!PyArg_ParseTuple(arguments, "y*|np", &view, &padding, &sliced)) return nullptr;
  if (padding < 0 || padding > view.len) {
    PyBuffer_Release(&view);
    PyErr_SetString(PyExc_ValueError, "more padding than text");
    return nullptr;
  }
  const auto* text = static_cast<const uint8_t*>(view.buf);
  const auto size = static_cast<size_t>(view.len - padding);
  std::unique_ptr<Answer> answer;
  bool memory = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    if (size <= kMaxText) {
      const bool ends = static_cast<size_t>(padding) >= kPadding &&
                        std::all_of(text + size, text + size + kPadding, [](uint8_t byte) { return byte == 0; });
      answer = read(ends ? text : padded(text, size), size, sliced != 0);
    }
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  if (!memory) return PyErr_NoMemory();
  if (!answer) return Py_NewRef(Py_None);
  return objects_of(*answer);
}

PyDoc_STRVAR(
    members_doc,
    "members(data, offsets, keys, /)\n--\n\n"
    "Of JSON objects back to back in `data`, between int32 `offsets`, the values of some keys (a tuple of bytes):\n"
    "for each key (int32 offsets, JSON texts back to back), empty where an object lacks it or has no text. None\n"
    "when a text is no plain object; then the plain parser has to read them.");

PyObject* members(PyObject*, PyObject* arguments) {
  Py_buffer data, offsets;
  PyObject* keys;
  if (!PyArg_ParseTuple(arguments, "y*y*O!", &data, &offsets, &PyTuple_Type, &keys)) return nullptr;
  std::vector<Text> wanted;
  std::vector<std::pair<Block, Block>> columns;
  bool good = false, memory = true;
  PyObject* found = nullptr;
  const auto* at = static_cast<const int32_t*>(offsets.buf);
  const size_t count = static_cast<size_t>(offsets.len) / sizeof(int32_t);
  bool sound =
      count > 0 && reinterpret_cast<uintptr_t>(at) % alignof(int32_t) == 0 && at[0] >= 0 && at[count - 1] <= data.len;
  for (size_t i = 1; sound && i < count; ++i) sound = at[i] >= at[i - 1];
  for (Py_ssize_t i = 0; sound && i < PyTuple_Size(keys); ++i) {
    char* text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(keys, i), &text, &size) < 0) goto done;
    wanted.push_back({reinterpret_cast<const uint8_t*>(text), static_cast<size_t>(size)});
  }
  if (!sound) {
    PyErr_SetString(PyExc_ValueError, "offsets that are no offsets into the data");
    goto done;
  }
  Py_BEGIN_ALLOW_THREADS;
  try {
    good = read_members(static_cast<const uint8_t*>(data.buf), at, count - 1, wanted, columns);
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  if (!memory) {
    PyErr_NoMemory();
  } else if (!good) {
    found = Py_NewRef(Py_None);
  } else if ((found = PyList_New(static_cast<Py_ssize_t>(columns.size())))) {
    for (size_t i = 0; found && i < columns.size(); ++i) {
      PyObject* item =
          Py_BuildValue("(NN)", buffer_of(std::move(columns[i].first)), buffer_of(std::move(columns[i].second)));
      if (!item || PyList_SetItem(found, static_cast<Py_ssize_t>(i), item) < 0) Py_CLEAR(found);
    }
  }
done:
  PyBuffer_Release(&data);
  PyBuffer_Release(&offsets);
  return found;
}

PyMethodDef methods[] = {{"tokenize", tokenize, METH_VARARGS, tokenize_doc},
                         {"members", members, METH_VARARGS, members_doc},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_tokenizer",
                      "Fast reader of trace events; see readers/native.py.",
                      -1,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__tokenizer() {
  if (!buffer_type) buffer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&buffer_spec));
  PyObject* made = buffer_type ? PyModule_Create(&module) : nullptr;
  if (made && PyModule_AddIntConstant(made, "VERSION", kVersion) < 0) Py_CLEAR(made);
  return made;
}
