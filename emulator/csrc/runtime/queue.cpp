#include "runtime/queue.h"

#include <utility>

namespace neuron {

WorkQueue::~WorkQueue() { stop(); }

void WorkQueue::push(std::unique_ptr<Task> task) {
  bool wake = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!worker_.joinable()) {
      stopping_ = false;
      worker_ = std::thread([this] { body_([this] { loop(); }); });
    }
    if (tasks_.size() >= kMaxPending) {
      ++waiters_;
      done_.wait(lock, [this] { return tasks_.size() < kMaxPending; });
      --waiters_;
    }
    tasks_.push_back(std::move(task));
    ++pushed_;
    wake = sleeping_;
  }
  if (wake) work_.notify_one();
}

void WorkQueue::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_ == pushed_) return;
  ++waiters_;
  done_.wait(lock, [this] { return finished_ == pushed_; });
  --waiters_;
}

uint64_t WorkQueue::pushed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

bool WorkQueue::finished(uint64_t ticket) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return finished_ >= ticket;
}

void WorkQueue::wait(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiters_;
  done_.wait(lock, [this, ticket] { return finished_ >= ticket; });
  --waiters_;
}

bool WorkQueue::failed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_ != nullptr;
}

void WorkQueue::fail(std::exception_ptr error) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!error_) error_ = std::move(error);
}

std::exception_ptr WorkQueue::take_error() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(error_, nullptr);
}

void WorkQueue::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  if (worker_.joinable()) worker_.join();
}

void WorkQueue::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (tasks_.empty()) {
      if (stopping_) return;
      sleeping_ = true;
      work_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      sleeping_ = false;
      continue;
    }
    std::unique_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool skip = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    if (!skip) {
      try {
        task->run();
      } catch (...) {
        error = std::current_exception();
      }
    }
    task.reset();  // frees the operands before anyone is told that the work is done
    lock.lock();
    if (error && !error_) error_ = error;
    ++finished_;
    if (waiters_ > 0) done_.notify_all();
  }
}

}  // namespace neuron
