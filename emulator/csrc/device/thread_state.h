// Thread-local torch state that the arithmetic behind an op needs.
#pragma once

#include <functional>

namespace neuron {

// Runs a worker thread's loop with autograd, recording and autocast switched off and torch's thread count applied.
void with_worker_thread_state(const std::function<void()>& loop);

}  // namespace neuron
