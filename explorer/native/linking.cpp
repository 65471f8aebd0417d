// What linking does row after row: the optional fast form of parts of readers/lanes.py and readers/arguments.py.
//
// The plain Python there is the definition; tests compare the two. Columns come in and go out as buffers, so that
// nothing here knows numpy or Arrow, and the interpreter's lock is released while they are worked on.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <queue>
#include <utility>
#include <vector>

namespace {

// A buffer of whole numbers, released at the end of its scope.
template <class T>
class Numbers {
 public:
  Numbers() = default;
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() {
    if (view_.obj) PyBuffer_Release(&view_);
  }

  bool take(PyObject* given) {
    if (PyObject_GetBuffer(given, &view_, PyBUF_SIMPLE) < 0) return false;
    if (!view_.len) return true;  // wherever an empty one points
    if (reinterpret_cast<uintptr_t>(view_.buf) % alignof(T) == 0 && view_.len % sizeof(T) == 0) return true;
    PyErr_SetString(PyExc_ValueError, "not a buffer of such numbers");
    return false;
  }
  const T* data() const { return static_cast<const T*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len) / sizeof(T); }
  T operator[](size_t at) const { return data()[at]; }

 private:
  Py_buffer view_{};
};

template <class T>
PyObject* bytes_of(const std::vector<T>& values) {
  return PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                       static_cast<Py_ssize_t>(values.size() * sizeof(T)));
}

// Nesting: lanes._nest_crossing

struct Open {
  int64_t end, level, row;
  int64_t least_end, most_level;  // of this and of those opened before
};

void push(std::vector<Open>& open, int64_t end, int64_t level, int64_t row) {
  const bool first = open.empty();
  open.push_back({end, level, row, first ? end : std::min(end, open.back().least_end),
                  first ? level : std::max(level, open.back().most_level)});
}

// Those that are over at a time go; mostly they are the ones opened last.
void close(std::vector<Open>& open, int64_t now) {
  while (!open.empty() && open.back().end <= now) open.pop_back();
  if (open.empty() || open.back().least_end > now) return;
  std::vector<Open> left;
  for (const Open& one : open)
    if (one.end > now) push(left, one.end, one.level, one.row);
  open.swap(left);
}

PyDoc_STRVAR(nest_doc,
             "nest(open, first, begins, ends, /)\n--\n\n"
             "Depths (int32) and parents (int64) of intervals in order of their begins, while those of `open` (end,\n"
             "level, row) are open; `first` is the row of the first. Also the rows (int64) that outlive the one they\n"
             "begin in, and what is open at the last begin.");

PyObject* nest(PyObject*, PyObject* arguments) {
  PyObject *given, *of_begins, *of_ends;
  long long first;
  if (!PyArg_ParseTuple(arguments, "O!LOO", &PyList_Type, &given, &first, &of_begins, &of_ends)) return nullptr;
  Numbers<int64_t> begins, ends;
  if (!begins.take(of_begins) || !ends.take(of_ends)) return nullptr;
  if (begins.size() != ends.size()) return PyErr_Format(PyExc_ValueError, "as many begins as ends");
  std::vector<Open> open;
  std::vector<int32_t> levels;
  std::vector<int64_t> parents;
  std::vector<int64_t> crossed;
  for (Py_ssize_t i = 0; i < PyList_Size(given); ++i) {
    long long end, level, row;
    if (!PyArg_ParseTuple(PyList_GetItem(given, i), "LLL", &end, &level, &row)) return nullptr;
    push(open, end, level, row);
  }
  bool memory = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    levels.resize(begins.size());
    parents.resize(begins.size());
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t begin = begins[i], end = ends[i];
      close(open, begin);
      int64_t level = 0, parent = -1;
      if (!open.empty()) {
        level = open.back().most_level + 1;
        parent = open.back().row;
        if (open.back().end < end) {
          crossed.push_back(static_cast<int64_t>(first) + static_cast<int64_t>(i));
          for (size_t at = open.size(); at-- > 0;) {
            if (open[at].end < end) continue;
            parent = open[at].row;
            break;
          }
        }
      }
      levels[i] = static_cast<int32_t>(level);
      parents[i] = parent;
      push(open, end, level, static_cast<int64_t>(first) + static_cast<int64_t>(i));
    }
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  if (!memory) return PyErr_NoMemory();
  PyObject* left = PyList_New(static_cast<Py_ssize_t>(open.size()));
  for (size_t i = 0; left && i < open.size(); ++i) {
    PyObject* one = Py_BuildValue("(LLL)", static_cast<long long>(open[i].end), static_cast<long long>(open[i].level),
                                  static_cast<long long>(open[i].row));
    if (!one || PyList_SetItem(left, static_cast<Py_ssize_t>(i), one) < 0) Py_CLEAR(left);
  }
  if (!left) return nullptr;
  return Py_BuildValue("(NNNN)", bytes_of(levels), bytes_of(parents), bytes_of(crossed), left);
}

// Lanes: lanes._greedy

PyDoc_STRVAR(free_lanes_doc,
             "free_lanes(running, begins, ends, /)\n--\n\n"
             "The first free lane (int32) of each interval in order of begins, while those of `running` (end, lane)\n"
             "run; also what runs at the last begin.");

PyObject* free_lanes(PyObject*, PyObject* arguments) {
  using Running = std::pair<int64_t, int64_t>;  // end, lane
  PyObject *given, *of_begins, *of_ends;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyList_Type, &given, &of_begins, &of_ends)) return nullptr;
  Numbers<int64_t> begins, ends;
  if (!begins.take(of_begins) || !ends.take(of_ends)) return nullptr;
  if (begins.size() != ends.size()) return PyErr_Format(PyExc_ValueError, "as many begins as ends");
  std::vector<Running> heap;
  std::vector<bool> taken;
  for (Py_ssize_t i = 0; i < PyList_Size(given); ++i) {
    long long end, lane;
    if (!PyArg_ParseTuple(PyList_GetItem(given, i), "LL", &end, &lane)) return nullptr;
    if (lane < 0 || lane > std::numeric_limits<int32_t>::max()) return PyErr_Format(PyExc_ValueError, "no lane");
    if (static_cast<size_t>(lane) >= taken.size()) taken.resize(static_cast<size_t>(lane) + 1);
    taken[static_cast<size_t>(lane)] = true;
    heap.push_back({end, lane});
  }
  std::vector<int32_t> lanes;
  bool memory = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free;
    int64_t used = static_cast<int64_t>(taken.size());
    for (size_t lane = 0; lane < taken.size(); ++lane)
      if (!taken[lane]) free.push(static_cast<int64_t>(lane));
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    lanes.resize(begins.size());
    for (size_t i = 0; i < begins.size(); ++i) {
      while (!heap.empty() && heap.front().first <= begins[i]) {
        free.push(heap.front().second);
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        heap.pop_back();
      }
      int64_t lane = used;
      if (free.empty()) {
        ++used;
      } else {
        lane = free.top();
        free.pop();
      }
      lanes[i] = static_cast<int32_t>(lane);
      heap.push_back({ends[i], lane});
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  if (!memory) return PyErr_NoMemory();
  PyObject* left = PyList_New(static_cast<Py_ssize_t>(heap.size()));
  for (size_t i = 0; left && i < heap.size(); ++i) {
    PyObject* one =
        Py_BuildValue("(LL)", static_cast<long long>(heap[i].first), static_cast<long long>(heap[i].second));
    if (!one || PyList_SetItem(left, static_cast<Py_ssize_t>(i), one) < 0) Py_CLEAR(left);
  }
  if (!left) return nullptr;
  return Py_BuildValue("(NN)", bytes_of(lanes), left);
}

// Attributes: arguments.attributes

struct Piece {
  int64_t first;  // row
  Numbers<int32_t> offsets;
  Numbers<uint8_t> data;
};

struct Part {  // of an answer
  const uint8_t* text;
  uint32_t size;
  int32_t code;  // of the prefix
};

enum class Kind { kNothing, kObject, kBare, kValue };

bool blank(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

constexpr uint32_t kShort = 24;  // an object with nothing but blanks inside is looked for among those below

Kind kind_of(const uint8_t* text, uint32_t size) {
  if (!size) return Kind::kNothing;
  if (text[0] != '{') return Kind::kValue;
  if (size >= kShort) return Kind::kObject;
  for (uint32_t i = 1; i + 1 < size; ++i)
    if (!blank(text[i])) return Kind::kObject;
  return Kind::kBare;
}

constexpr char kNamed[] = ",\"args\":", kAlone[] = "\"args\":";
constexpr size_t kMost = sizeof kNamed;  // bytes beside prefix and text

PyDoc_STRVAR(
    attributes_doc,
    "attributes(pieces, rows, codes, prefixes, /)\n--\n\n"
    "The prefix and the arguments of some rows as one JSON object each: (int32 offsets, texts back to back).\n"
    "`pieces` are lists (first row, int32 offsets, texts) in order of their rows; `rows` int64, `codes` int32\n"
    "into `prefixes`. None when the answer is too long for such offsets.");

PyObject* attributes(PyObject*, PyObject* arguments) {
  PyObject *of_pieces, *of_rows, *of_codes, *of_prefixes;
  if (!PyArg_ParseTuple(arguments, "O!OOO!", &PyList_Type, &of_pieces, &of_rows, &of_codes, &PyList_Type, &of_prefixes))
    return nullptr;
  Numbers<int64_t> rows;
  Numbers<int32_t> codes;
  if (!rows.take(of_rows) || !codes.take(of_codes)) return nullptr;
  if (rows.size() != codes.size()) return PyErr_Format(PyExc_ValueError, "as many rows as codes");
  std::vector<Piece> pieces(static_cast<size_t>(PyList_Size(of_pieces)));
  for (size_t i = 0; i < pieces.size(); ++i) {
    PyObject *offsets, *data;
    long long first;
    if (!PyArg_ParseTuple(PyList_GetItem(of_pieces, static_cast<Py_ssize_t>(i)), "LOO", &first, &offsets, &data))
      return nullptr;
    pieces[i].first = first;
    if (!pieces[i].offsets.take(offsets) || !pieces[i].data.take(data)) return nullptr;
  }
  std::vector<std::pair<const uint8_t*, size_t>> prefixes(static_cast<size_t>(PyList_Size(of_prefixes)));
  for (size_t i = 0; i < prefixes.size(); ++i) {
    char* text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(PyList_GetItem(of_prefixes, static_cast<Py_ssize_t>(i)), &text, &size) < 0)
      return nullptr;
    prefixes[i] = {reinterpret_cast<const uint8_t*>(text), static_cast<size_t>(size)};
  }
  std::vector<Part> parts;
  std::vector<int32_t> offsets;
  uint64_t total = 0;
  bool memory = true, sound = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    parts.resize(rows.size());
    offsets.resize(rows.size() + 1);
    size_t at = 0;
    for (size_t i = 0; sound && i < rows.size(); ++i) {
      const int64_t row = rows[i];
      if (at >= pieces.size() || row < pieces[at].first || (at + 1 < pieces.size() && row >= pieces[at + 1].first)) {
        const auto after = std::upper_bound(pieces.begin(), pieces.end(), row,
                                            [](int64_t wanted, const Piece& piece) { return wanted < piece.first; });
        at = static_cast<size_t>(after - pieces.begin()) - 1;  // beyond all where there is none
      }
      sound = at < pieces.size() && static_cast<size_t>(row - pieces[at].first) + 1 < pieces[at].offsets.size() &&
              codes[i] >= 0 && static_cast<size_t>(codes[i]) < prefixes.size();
      if (!sound) break;
      const Piece& piece = pieces[at];
      const int32_t begin = piece.offsets[static_cast<size_t>(row - piece.first)];
      const int32_t end = piece.offsets[static_cast<size_t>(row - piece.first) + 1];
      sound = 0 <= begin && begin <= end && static_cast<size_t>(end) <= piece.data.size();
      if (!sound) break;
      parts[i] = {piece.data.data() + begin, static_cast<uint32_t>(end - begin), codes[i]};
      total += prefixes[static_cast<size_t>(codes[i])].second + parts[i].size + kMost;
      if (total > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) break;
    }
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  if (!memory) return PyErr_NoMemory();
  if (!sound) return PyErr_Format(PyExc_ValueError, "rows that the pieces do not hold");
  if (total > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) return Py_NewRef(Py_None);
  PyObject* made = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total));
  if (!made) return nullptr;
  auto* out = reinterpret_cast<uint8_t*>(PyByteArray_AsString(made));
  size_t size = 0;
  Py_BEGIN_ALLOW_THREADS;
  const auto put = [&](const void* text, size_t length) {
    std::memcpy(out + size, text, length);
    size += length;
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const auto& [prefix, length] = prefixes[static_cast<size_t>(part.code)];
    const bool alone = length == 1;
    put(prefix, length);
    const Kind kind = kind_of(part.text, part.size);
    switch (kind) {
      case Kind::kNothing:
        put(" }", 2);
        break;
      case Kind::kValue:
        put(alone ? kAlone : kNamed, alone ? sizeof kAlone - 1 : sizeof kNamed - 1);
        put(part.text, part.size);
        put("}", 1);
        break;
      default:  // the brace becomes the comma after the category
        out[size++] = kind == Kind::kBare || alone ? ' ' : ',';
        put(part.text + 1, part.size - 1);
    }
    offsets[i + 1] = static_cast<int32_t>(size);
  }
  Py_END_ALLOW_THREADS;
  if (PyByteArray_Resize(made, static_cast<Py_ssize_t>(size)) < 0) {
    Py_DECREF(made);
    return nullptr;
  }
  return Py_BuildValue("(NN)", bytes_of(offsets), made);
}

PyMethodDef methods[] = {{"nest", nest, METH_VARARGS, nest_doc},
                         {"free_lanes", free_lanes, METH_VARARGS, free_lanes_doc},
                         {"attributes", attributes, METH_VARARGS, attributes_doc},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_linking",
                      "Row after row of a trace; see readers/lanes.py and readers/arguments.py.",
                      -1,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__linking() { return PyModule_Create(&module); }
