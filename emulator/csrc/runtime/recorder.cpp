#include "runtime/recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace neuron {
namespace {

thread_local std::vector<uint64_t> external_ids;

int64_t current_thread_id() {
  thread_local const int64_t id = static_cast<int64_t>(::syscall(SYS_gettid));
  return id;
}

}  // namespace

uint64_t current_external_id() { return external_ids.empty() ? 0 : external_ids.back(); }

void push_external_id(uint64_t id) { external_ids.push_back(id); }

void pop_external_id() {
  // Torch pops ids that it pushed before our session existed; those were never on this stack.
  if (!external_ids.empty()) external_ids.pop_back();
}

Recorder& Recorder::get() {
  // Leaked on purpose: device worker threads may still submit while static destructors run.
  static Recorder* recorder = new Recorder();
  return *recorder;
}

void Recorder::submit(LaunchRecord record) {
  if (!active()) return;
  if (record.thread_id == 0) record.thread_id = current_thread_id();
  if (record.external_id == 0) record.external_id = current_external_id();
  if (record.step < 0) record.step = step();
  if (call_site_ && record.source_id < 0 && record.module_id < 0) {
    const CallSite site = call_site_();
    record.source_id = site.source_id;
    record.module_id = site.module_id;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (!active()) return;  // closed meanwhile
  const auto& cores = options_.cores;
  if (!cores.empty() && std::find(cores.begin(), cores.end(), record.device) == cores.end()) return;
  Ring& ring = rings_[record.device];
  if (static_cast<int64_t>(ring.records.size()) < options_.max_events_per_nc) {
    ring.records.push_back(record);
    return;
  }
  ++ring.dropped;
  if (ring.records.empty()) return;  // max_events_per_nc == 0 records nothing and counts everything
  ring.records[ring.next] = record;
  ring.next = (ring.next + 1) % ring.records.size();
}

void Recorder::submit(HostRecord record) {
  if (!active()) return;
  if (record.thread_id == 0) record.thread_id = current_thread_id();
  if (record.external_id == 0) record.external_id = current_external_id();
  std::lock_guard<std::mutex> lock(mutex_);
  if (!active()) return;
  if (static_cast<int64_t>(hosts_.size()) >= options_.max_events_per_nc) {
    ++dropped_hosts_;
    return;
  }
  hosts_.push_back(std::move(record));
}

bool Recorder::start(CaptureOptions options, int64_t now_ns) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (open_) return false;
    open_ = true;
    options_ = std::move(options);
    start_ns_ = now_ns;
    stop_ns_ = 0;
    rings_.clear();
    hosts_.clear();
    dropped_hosts_ = 0;
    set_step(-1);
  }
  for (const auto& listener : listeners_) listener(true);
  device_mode_.store(options_.device_mode, std::memory_order_relaxed);
  active_.store(true, std::memory_order_release);
  return true;
}

void Recorder::close(int64_t now_ns) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!open_ || stop_ns_ != 0) return;
    stop_ns_ = now_ns;
    active_.store(false, std::memory_order_release);
    device_mode_.store(false, std::memory_order_relaxed);
  }
  for (const auto& listener : listeners_) listener(false);
}

Capture Recorder::stop(int64_t now_ns) {
  close(now_ns);
  std::lock_guard<std::mutex> lock(mutex_);
  Capture capture;
  capture.options = options_;
  capture.start_ns = start_ns_;
  capture.stop_ns = stop_ns_;
  for (auto& [core, ring] : rings_) {
    capture.dropped[core] = ring.dropped;
    std::move(ring.records.begin(), ring.records.end(), std::back_inserter(capture.launches));
  }
  // Threads submit in any order, and a full ring starts in its middle: the execution id is the launch order.
  std::sort(capture.launches.begin(), capture.launches.end(),
            [](const LaunchRecord& a, const LaunchRecord& b) { return a.execution_id < b.execution_id; });
  capture.hosts = std::move(hosts_);
  capture.dropped_hosts = dropped_hosts_;
  rings_.clear();
  hosts_.clear();
  open_ = false;
  return capture;
}

int32_t Recorder::intern(std::string_view text) {
  std::lock_guard<std::mutex> lock(strings_mutex_);
  if (const auto found = string_ids_.find(text); found != string_ids_.end()) return found->second;
  strings_.push_back(std::make_unique<std::string>(text));
  const auto id = static_cast<int32_t>(strings_.size() - 1);
  string_ids_.emplace(*strings_.back(), id);
  return id;
}

std::string Recorder::string(int32_t id) const {
  std::lock_guard<std::mutex> lock(strings_mutex_);
  return id < 0 || id >= static_cast<int32_t>(strings_.size()) ? std::string() : *strings_[id];
}

void Recorder::set_call_site_provider(std::function<CallSite()> provider) { call_site_ = std::move(provider); }

void Recorder::on_change(std::function<void(bool)> listener) { listeners_.push_back(std::move(listener)); }

}  // namespace neuron
