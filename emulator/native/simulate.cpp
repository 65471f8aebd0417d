#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "columns.h"

namespace neuroncore {

namespace {

constexpr double kDoneBytes = 1e-6;

// An array argument as a plain pointer; keeps the array alive.
template <typename T>
class Column {
 public:
  Column(const py::dict& from, const char* name)
      : array_(py::array_t<T, py::array::c_style | py::array::forcecast>::ensure(from[name])),
        data_(array_.data()),
        size_(static_cast<size_t>(array_.size())) {}
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }

 private:
  py::array_t<T, py::array::c_style | py::array::forcecast> array_;
  const T* data_;
  size_t size_;
};

struct Completion {
  int index;
  double first, last;
};

// The DMA engines as a shared resource: see neuroncore/timing/dma.py, of which this is the compiled form.
class DmaEngines {
 public:
  DmaEngines(size_t queues, double queue_interval_ns) : queues_(queues), queue_interval_ns_(queue_interval_ns) {}

  void submit(int queue, int index, double arrival, double bytes, double share, double largest) {
    queues_[queue].waiting.push_back({index, arrival, bytes, share, largest});
  }

  // Advances to the next completion; empty when idle. Queues are ranked by name.
  void next_completions(std::vector<Completion>& completions) {
    completions.clear();
    while (true) {
      std::optional<double> arrival = start_ready();
      if (active_.empty()) {
        if (!arrival) return;
        now_ = std::max(now_, *arrival);
        continue;
      }
      if (!rated_) fair_rates();
      double end = std::numeric_limits<double>::infinity();
      for (int q : active_) end = std::min(end, now_ + queues_[q].left / queues_[q].rate);
      if (arrival && *arrival < end) {
        advance(*arrival);
        continue;
      }
      advance(end);
      std::erase_if(active_, [&](int q) {
        Queue& queue = queues_[q];
        if (queue.left > kDoneBytes && now_ + queue.left / queue.rate > now_) return false;
        completions.push_back({queue.head.index, queue.first, now_});
        queue.active = false;
        return true;
      });
      rated_ = false;
      return;
    }
  }

 private:
  struct Transfer {
    int index;
    double arrival, bytes, share, largest;
  };
  struct Queue {
    std::deque<Transfer> waiting;
    bool active = false;
    Transfer head{};
    double next_start = 0.0, left = 0.0, rate = 0.0, first = 0.0;
  };

  std::optional<double> start_ready() {
    std::optional<double> upcoming;
    for (size_t q = 0; q < queues_.size(); ++q) {
      Queue& queue = queues_[q];
      if (queue.active || queue.waiting.empty()) continue;
      double arrival = std::max(queue.waiting.front().arrival, queue.next_start);
      if (arrival <= now_) {
        queue.head = queue.waiting.front();
        queue.waiting.pop_front();
        queue.left = queue.head.bytes;
        queue.first = now_;
        queue.active = true;
        queue.next_start = now_ + queue_interval_ns_;
        active_.push_back(static_cast<int>(q));
        rated_ = false;
      } else if (!upcoming || arrival < *upcoming) {
        upcoming = arrival;
      }
    }
    return upcoming;
  }

  void fair_rates() {
    order_.assign(active_.begin(), active_.end());
    std::sort(order_.begin(), order_.end(), [&](int a, int b) {
      double first = queues_[a].head.largest, second = queues_[b].head.largest;
      return first != second ? first < second : a < b;
    });
    double left = 1.0;
    auto count = static_cast<double>(order_.size());
    for (int q : order_) {
      double share = std::min(queues_[q].head.largest, left / count);
      queues_[q].rate = share / queues_[q].head.share;
      left -= share;
      count -= 1;
    }
    rated_ = true;
  }

  void advance(double time) {
    double elapsed = time - now_;
    for (int q : active_) queues_[q].left -= elapsed * queues_[q].rate;
    now_ = time;
  }

  std::vector<Queue> queues_;
  std::vector<int> active_, order_;
  double queue_interval_ns_, now_ = 0.0;
  bool rated_ = false;
};

// Values and times of one semaphore, both increasing.
struct Semaphore {
  std::vector<int64_t> values;
  std::vector<double> times;
  std::vector<int> waiting;  // engines
  int owner = -1;            // engine that raises it, -1: a queue
};

struct Engine {
  std::vector<int32_t> stream;  // executed instructions
  size_t position = 0;
  double free = 0.0, last_visible = 0.0, generator_free = 0.0, cold = 0.0;
  int table = 0;
};

class Simulation {
 public:
  Simulation(const py::dict& columns, const py::dict& costs, const py::dict& rates)
      : index(columns, "index"),
        wait_start(columns, "wait_start"),
        wait_value(columns, "wait_value"),
        signal_increment(columns, "signal_increment"),
        wait_semaphore(columns, "wait_semaphore"),
        signal_semaphore(columns, "signal_semaphore"),
        signal_start(columns, "signal_start"),
        engine(costs, "engine"),
        queue(costs, "queue"),
        table(costs, "table"),
        issue_ns(costs, "issue_ns"),
        latency_ns(costs, "latency_ns"),
        generator_ns(costs, "generator_ns"),
        bytes(costs, "bytes"),
        share(costs, "share"),
        largest(costs, "largest"),
        engines(costs["engines"].cast<size_t>()),
        semaphores(py::len(columns["semaphores"])),
        queue_done(costs["queues"].cast<size_t>(), 0.0),
        tensor(costs["tensor"].cast<int>()),
        gpsimd(costs["gpsimd"].cast<int>()),
        dma(costs["queues"].cast<size_t>(), rates["dma_queue_interval_ns"].cast<double>()) {
    auto rate = [&](const char* name) { return rates[name].cast<double>(); };
    handoff_ns = rate("semaphore_ns");
    table_load_ns = rate("activation_table_load_ns");
    warmup_rate = rate("tensor_warmup_rate");
    warmup_ns = rate("tensor_warmup_ns");
    idle_ns = rate("tensor_idle_ns");
    software_start_ns = rate("dma_software_start_ns");
    start_ns = rate("dma_start_ns");
    fixed_ns = rate("dge_fixed_ns");
    done_ns = rate("dma_done_ns");
    size_t count = index.size();
    for (auto* column : {&start, &end, &visible, &wait, &first_byte, &last_byte}) column->assign(count, 0.0);
  }

  // False when instructions are left whose waits nothing satisfies.
  bool run() {
    for (size_t i = 0; i < index.size(); ++i) engines[engine[index[i]]].stream.push_back(static_cast<int32_t>(i));
    for (Engine& e : engines) e.cold = warmup_ns;
    for (size_t e = 0; e < engines.size(); ++e) runnable.push_back(static_cast<int>(e));
    std::vector<Completion> completions;
    while (true) {
      while (!runnable.empty()) {
        int e = runnable.front();
        runnable.pop_front();
        play(e);
      }
      dma.next_completions(completions);
      if (completions.empty()) break;
      for (const Completion& done : completions) complete(done);
    }
    return std::all_of(engines.begin(), engines.end(), [](const Engine& e) { return e.position == e.stream.size(); });
  }

  std::vector<double> start, end, visible, wait, first_byte, last_byte;
  std::vector<int32_t> loads;  // instructions before which a table was loaded
  std::vector<double> load_start;

  py::list stuck() const {
    py::list result;
    for (size_t s = 0; s < semaphores.size(); ++s) {
      for (int e : semaphores[s].waiting) {
        result.append(py::make_tuple(s, e, semaphores[s].values.empty() ? 0 : semaphores[s].values.back()));
      }
    }
    return result;
  }

 private:
  void raise(int semaphore, int64_t increment, double time, int owner) {
    Semaphore& s = semaphores[semaphore];
    if (s.values.empty()) s.owner = owner;
    s.values.push_back((s.values.empty() ? 0 : s.values.back()) + increment);
    s.times.push_back(time);
    for (int e : s.waiting) runnable.push_back(e);
    s.waiting.clear();
  }

  void play(int number) {
    Engine& e = engines[number];
    bool warms = number == tensor && warmup_rate < 1;
    while (e.position < e.stream.size()) {
      int32_t at = e.stream[e.position], text = index[at];
      double begin = e.free;
      for (int64_t w = wait_start[at]; w < wait_start[at + 1]; ++w) {
        Semaphore& s = semaphores[wait_semaphore[w]];
        int64_t value = wait_value[w];
        if (s.values.empty() || s.values.back() < value) {
          s.waiting.push_back(number);
          return;
        }
        auto reached = std::lower_bound(s.values.begin(), s.values.end(), value) - s.values.begin();
        double time = s.times[reached];
        if (s.owner != number) time += handoff_ns;
        begin = std::max(begin, time);
      }
      wait[at] = begin - e.free;
      if (table[text] && table[text] != e.table) {
        e.table = table[text];
        loads.push_back(at);
        load_start.push_back(begin);
        begin += table_load_ns;
      }
      double issue = issue_ns[text];
      if (warms) {
        if (begin - e.free >= idle_ns) e.cold = warmup_ns;
        if (e.cold > 0) {
          double slow = std::min(e.cold, issue / warmup_rate);
          issue = slow + (issue - slow * warmup_rate);
          e.cold -= slow;
        }
      }
      start[at] = begin;
      e.free = end[at] = begin + issue;
      ++e.position;
      if (queue[text] >= 0) {
        double arrival;
        if (number == gpsimd) {  // software descriptors are built by the engine itself, within `issue`
          arrival = e.free + software_start_ns;
        } else {
          double from = std::max(e.free, e.generator_free);
          e.generator_free = from + fixed_ns + generator_ns[text];
          arrival = from + start_ns;
        }
        visible[at] = e.free;
        dma.submit(queue[text], at, arrival, bytes[text], share[text], largest[text]);
        continue;
      }
      e.last_visible = visible[at] = std::max(e.last_visible, e.free + latency_ns[text]);
      for (int32_t s = signal_start[text]; s < signal_start[text + 1]; ++s) {
        raise(signal_semaphore[s], signal_increment[s], e.last_visible, number);
      }
    }
  }

  void complete(const Completion& transfer) {
    int32_t text = index[transfer.index];
    first_byte[transfer.index] = transfer.first;
    last_byte[transfer.index] = transfer.last;
    double& queue_end = queue_done[queue[text]];
    // The handoff to the waiting engine is part of dma_done_ns.
    queue_end = visible[transfer.index] = std::max(transfer.last + done_ns, queue_end);
    for (int32_t s = signal_start[text]; s < signal_start[text + 1]; ++s) {
      raise(signal_semaphore[s], signal_increment[s], queue_end - handoff_ns, -1);
    }
  }

  Column<int32_t> index;
  Column<int64_t> wait_start, wait_value, signal_increment;
  Column<int32_t> wait_semaphore, signal_semaphore, signal_start, engine, queue, table;
  Column<double> issue_ns, latency_ns, generator_ns, bytes, share, largest;
  std::vector<Engine> engines;
  std::vector<Semaphore> semaphores;
  std::vector<double> queue_done;
  std::deque<int> runnable;
  int tensor, gpsimd;
  DmaEngines dma;
  double handoff_ns, table_load_ns, warmup_rate, warmup_ns, idle_ns, software_start_ns, start_ns, fixed_ns, done_ns;
};

}  // namespace

py::dict play(const py::dict& columns, const py::dict& costs, const py::dict& rates) {
  Simulation simulation(columns, costs, rates);
  bool finished;
  {
    py::gil_scoped_release release;
    finished = simulation.run();
  }
  py::dict result;
  if (!finished) {
    result["stuck"] = simulation.stuck();
    return result;
  }
  result["start"] = to_array(simulation.start);
  result["end"] = to_array(simulation.end);
  result["visible"] = to_array(simulation.visible);
  result["wait"] = to_array(simulation.wait);
  result["first_byte"] = to_array(simulation.first_byte);
  result["last_byte"] = to_array(simulation.last_byte);
  result["loads"] = to_array(simulation.loads);
  result["load_start"] = to_array(simulation.load_start);
  return result;
}

}  // namespace neuroncore
