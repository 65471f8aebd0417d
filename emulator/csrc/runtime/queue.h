// One in-order queue with its own worker thread: computes values, never decides a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace neuron {

class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;
};

// After a task fails, the tasks behind it are skipped until take_error() hands the failure to a synchronizing caller.
class WorkQueue {
 public:
  // Runs around the worker's loop, for thread-local state the tasks need.
  using ThreadBody = void (*)(const std::function<void()>& loop);

  explicit WorkQueue(ThreadBody body) : body_(body) {}
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Blocks while kMaxPending tasks wait, so that memory stays bounded when the arithmetic is slower than its issue.
  void push(std::unique_ptr<Task> task);
  void drain();
  uint64_t pushed() const;
  bool finished(uint64_t ticket) const;  // all tasks up to `ticket` = pushed() at some time
  void wait(uint64_t ticket);
  bool failed() const;
  // Stores a failure found outside the worker, unless one is stored already.
  void fail(std::exception_ptr error);
  // The first failure since the last call, or null. Call after drain().
  std::exception_ptr take_error();
  // Ends the worker after what is queued; the queue restarts when used again.
  void stop();

 private:
  static constexpr size_t kMaxPending = 1024;
  void loop();

  const ThreadBody body_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<std::unique_ptr<Task>> tasks_;
  std::thread worker_;
  bool stopping_ = false, sleeping_ = false;
  uint64_t pushed_ = 0, finished_ = 0;
  int waiters_ = 0;
  std::exception_ptr error_;
};

}  // namespace neuron
