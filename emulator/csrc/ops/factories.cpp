// The ops that make neuron tensors exist: allocation, views of a storage, storage replacement. They launch nothing.
#include <ATen/EmptyTensor.h>
#include <ATen/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "device/allocator.h"
#include "device/hooks.h"
#include "device/runtime.h"

namespace neuron {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device resolve(std::optional<c10::Device> device) {
  if (device && device->has_index()) {
    check_device_index(device->index());
    return *device;
  }
  return {at::kPrivateUse1, current_device()};
}

void check_layout(std::optional<at::Layout> layout) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "neuron tensors are strided; layout ", *layout,
                              " is not supported");
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_layout(layout);
  const c10::DeviceGuard guard(resolve(device));
  return at::detail::empty_generic(size, &allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool>) {
  check_layout(layout);
  const c10::DeviceGuard guard(resolve(device));
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys, c10::dtype_or_default(dtype));
}

void grow(c10::TensorImpl* self, c10::IntArrayRef size, c10::IntArrayRef stride, int64_t offset) {
  if (self->numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(size, stride, self->dtype().itemsize(), offset);
  c10::StorageImpl* storage = self->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) resize_storage(*storage, needed);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
    grow(impl, self.sizes(), self.strides(), self.storage_offset());
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  TORCH_CHECK(source.device().is_privateuseone(), "set_: the storage is on ", source.device(), ", the tensor on ",
              self.device());
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data() == nullptr || (stride.empty() && !size.empty())) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  grow(impl, self.sizes(), self.strides(), offset);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(0),
                                                       allocate(0, self.device().index()), &allocator(), true);
  return set_storage(self, c10::Storage(std::move(storage)), 0, {0}, {});
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_empty);
}

}  // namespace
}  // namespace neuron
