#include "profiler/call_site.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <Python.h>
#include <torch/csrc/autograd/function.h>

#include <mutex>
#include <unordered_map>
#include <utility>

namespace neuron::profiler {
namespace {

thread_local std::vector<int32_t> module_stack;

std::mutex folders_mutex;
std::vector<std::string> library_folders;
std::string working_folder;

// Forward call sites by (thread of the forward, autograd sequence number).
struct SiteKey {
  uint64_t thread, sequence;
  bool operator==(const SiteKey& other) const { return thread == other.thread && sequence == other.sequence; }
};
struct SiteHash {
  size_t operator()(const SiteKey& key) const {
    return std::hash<uint64_t>()(key.thread * 0x9E3779B97F4A7C15ULL + key.sequence);
  }
};
std::mutex sites_mutex;
std::unordered_map<SiteKey, CallSite, SiteHash> forward_sites;

// What we know of a code object; kept alive so that its address is not reused. Guarded by the GIL.
struct CodeInfo {
  bool is_user = false;
  std::string file;
};

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

const CodeInfo& code_info(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, CodeInfo>();  // leaked: may outlive the interpreter
  if (const auto found = known->find(code); found != known->end()) return found->second;
  CodeInfo info;
  if (const char* file = PyUnicode_AsUTF8(code->co_filename)) {
    info.file = file;
    std::lock_guard<std::mutex> lock(folders_mutex);
    // "<string>", "<frozen importlib>", "<eval_with_key>.3": generated code, nobody can open it.
    info.is_user = !info.file.empty() && info.file[0] != '<';
    for (const auto& folder : library_folders) info.is_user = info.is_user && !starts_with(info.file, folder);
    if (!working_folder.empty() && starts_with(info.file, working_folder)) info.file.erase(0, working_folder.size());
  } else {
    PyErr_Clear();
  }
  Py_INCREF(code);
  return known->emplace(code, std::move(info)).first->second;
}

int32_t python_source() {
  // A thread that never ran Python has no frames; asking for the GIL there would only wait.
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return -1;
  const PyGILState_STATE gil = PyGILState_Ensure();
  int32_t source = -1;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const CodeInfo& info = code_info(code);
    if (info.is_user) source = Recorder::get().intern(info.file + ":" + std::to_string(PyFrame_GetLineNumber(frame)));
    Py_DECREF(code);
    PyFrameObject* back = source < 0 ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  PyGILState_Release(gil);
  return source;
}

}  // namespace

CallSite current_call_site() {
  if (const auto node = torch::autograd::get_current_node()) {
    std::lock_guard<std::mutex> lock(sites_mutex);
    const auto found = forward_sites.find({node->thread_id(), node->sequence_nr()});
    if (found != forward_sites.end()) return found->second;
  }
  CallSite site;
  site.source_id = python_source();
  site.module_id = module_stack.empty() ? -1 : module_stack.back();
  // The autograd node of this op, if it has one, took the last sequence number before the op reached the device.
  if (const uint64_t next = at::sequence_number::peek(); next > 0) {
    std::lock_guard<std::mutex> lock(sites_mutex);
    forward_sites.emplace(SiteKey{at::RecordFunction::currentThreadId(), next - 1}, site);
  }
  return site;
}

void set_library_folders(std::vector<std::string> folders) {
  std::lock_guard<std::mutex> lock(folders_mutex);
  library_folders = std::move(folders);
}

void set_working_folder(std::string folder) {
  std::lock_guard<std::mutex> lock(folders_mutex);
  working_folder = std::move(folder);
}

void push_module(int32_t module_id) { module_stack.push_back(module_id); }

void pop_module() {
  if (!module_stack.empty()) module_stack.pop_back();  // recording began inside this module's forward
}

void clear_forward_sites() {
  std::lock_guard<std::mutex> lock(sites_mutex);
  forward_sites.clear();
}

}  // namespace neuron::profiler
