// Random numbers: a counter-based state (seed, offset) of 16 bytes. Every random op takes the next offset and draws
// from a CPU generator of its own, so that queued ops need no order among each other.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>

namespace neuron {

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type();

  // Seed for the next random op; advances the offset. The caller holds mutex_.
  uint64_t next_op_seed();

 private:
  NeuronGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);
// The CPU generator one op draws from. Takes the default generator of `device` when `generator` is undefined.
at::Generator generator_for_op(const at::Generator& generator, c10::DeviceIndex device);

}  // namespace neuron
