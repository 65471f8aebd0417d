// What generic torch code asks an accelerator for.
#include "device/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <cstring>

#include "device/allocator.h"
#include "device/generator.h"
#include "device/runtime.h"

namespace neuron {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return neuron::device_count() > 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<NeuronGenerator>(index < 0 ? current_device() : index);
  }
  at::Device getDeviceFromPtr(void*) const override { return {at::kPrivateUse1, current_device()}; }
  bool isPinnedPtr(const void*) const override { return false; }
  // Host memory is as near to an emulated device as memory gets: nothing needs pinning.
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return is_initialized(); }
  void init() const override { ensure_initialized(); }
  c10::DeviceIndex deviceCount() const override { return torch_device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto previous = current_device();
    set_current_device(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  const auto device = storage.device().index();
  // Queued work may still write to the old memory.
  for (StreamState* stream : core(device).streams()) drain(*stream);
  c10::DataPtr memory = allocate(bytes, device);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0 && storage.data() != nullptr) std::memcpy(memory.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(bytes);
}

void register_hooks() {
  static auto* hooks = new Hooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace neuron
