#include "device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "device/runtime.h"

namespace neuron {
namespace {

constexpr int64_t kStateBytes = 16;  // seed u64, offset i64; the seed alone (8) is accepted

}  // namespace

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

void NeuronGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void NeuronGenerator::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t NeuronGenerator::get_offset() const { return offset_; }
uint64_t NeuronGenerator::current_seed() const { return seed_; }

uint64_t NeuronGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  const auto bytes = static_cast<int64_t>(state.numel());
  TORCH_CHECK(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.device().is_cpu() && state.is_contiguous(),
              "RNG state must be a torch.ByteTensor on the CPU");
  TORCH_CHECK(bytes == kStateBytes || bytes == kStateBytes / 2, "RNG state is wrong size: ", bytes, " bytes, expected ",
              kStateBytes, " (seed and offset) or ", kStateBytes / 2, " (seed)");
  const auto* data = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, data, sizeof(seed_));
  offset_ = 0;
  if (bytes == kStateBytes) std::memcpy(&offset_, data + sizeof(seed_), sizeof(offset_));
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* data = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::memcpy(data, &seed_, sizeof(seed_));
  std::memcpy(data + sizeof(seed_), &offset_, sizeof(offset_));
  return state.getIntrusivePtr();
}

c10::DeviceType NeuronGenerator::device_type() { return c10::DeviceType::PrivateUse1; }

uint64_t NeuronGenerator::next_op_seed() {
  // Offset 0 gives the seed itself; the rest are spread over 64 bits (the golden-ratio sequence).
  return seed_ ^ (offset_++ * 0x9E3779B97F4A7C15ULL);
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  auto* copy = new NeuronGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* generators = new std::array<at::Generator, 128>;
  static std::mutex mutex;
  if (device < 0) device = current_device();
  check_device_index(device);
  std::lock_guard<std::mutex> lock(mutex);
  at::Generator& generator = (*generators)[static_cast<size_t>(device)];
  if (!generator.defined()) generator = at::make_generator<NeuronGenerator>(device);
  return generator;
}

at::Generator generator_for_op(const at::Generator& generator, c10::DeviceIndex device) {
  at::Generator source = generator.defined() ? generator : default_generator(device);
  if (source.device().is_cpu()) return source;  // the caller asked for the CPU's numbers
  std::lock_guard<std::mutex> lock(source.mutex());
  return at::detail::createCPUGenerator(at::check_generator<NeuronGenerator>(source)->next_op_seed());
}

}  // namespace neuron
