// Torch's generic device, stream and event calls for PrivateUse1.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device/event.h"
#include "device/runtime.h"

namespace neuron {
namespace {

constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;

c10::DeviceIndex index_of(c10::Device device) { return device.has_index() ? device.index() : current_device(); }

c10::Stream make_stream(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kNeuron, index), id);
}

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNeuron; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous(kNeuron, current_device());
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return {kNeuron, current_device()}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kNeuron, "Expected Neuron device, got: ", device);
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      setDevice(device);
    } catch (...) {
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return torch_device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override {
    const auto index = index_of(device);
    return make_stream(index, current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return make_stream(index_of(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    const auto index = index_of(device);
    return make_stream(index, options().real_streams ? core(index).new_stream() : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto index = stream.device_index();
    return make_stream(index, exchange_stream(index, stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return query_stream(stream.device_index(), stream.id());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Core& device = core(stream.device_index());
    synchronize_stream(device, device.stream(stream.id()), "nrt_synchronize");
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    synchronize_device(index < 0 ? current_device() : index);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      auto* created = new Event;
      created->timing = flag == c10::EventFlag::BACKEND_DEFAULT;
      *event = created;
    }
    record_event(*static_cast<Event*>(*event), stream.device_index(), stream.id());
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) block_stream(*static_cast<Event*>(event), stream.device_index(), stream.id());
  }
  bool queryEvent(void* event) const override { return event == nullptr || query_event(*static_cast<Event*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize_event(*static_cast<Event*>(event));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Event has not been recorded");
    return elapsed_ms(*static_cast<Event*>(start), *static_cast<Event*>(end));
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl);

}  // namespace
}  // namespace neuron
