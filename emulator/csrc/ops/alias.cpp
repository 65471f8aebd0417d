#include "ops/alias.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>

#include "device/allocator.h"
#include "device/runtime.h"

namespace neuron {
namespace {

constexpr size_t kLinearSearch = 16;

void copy_flags(const at::Tensor& from, at::Tensor& to) {
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

at::Tensor make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  copy_flags(like, tensor);
  return tensor;
}

}  // namespace

at::Tensor empty_neuron(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                        c10::DeviceIndex device) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
                                                       allocate(bytes, device), &allocator(), /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor adopt_tensor(const at::Tensor& cpu, c10::DeviceIndex device, bool take) {
  core(device);
  const c10::Storage& from = cpu.storage();
  const size_t bytes = from.nbytes();
  c10::DataPtr memory;
  if (take && from.use_count() == 1 && from.resizable()) {
    // Nobody else sees this storage: take its memory and leave it empty.
    memory = from.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, c10::Device(at::kCPU)));
  } else if (Block* block = block_of(from.data_ptr())) {
    memory = share_block(block, c10::Device(at::kCPU));
  } else {
    auto* owner = new c10::Storage(from);
    memory = c10::DataPtr(
        from.mutable_data(), owner, [](void* context) { delete static_cast<c10::Storage*>(context); },
        c10::Device(at::kCPU));
  }
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
                                                       adopt(std::move(memory), bytes, device), &allocator(),
                                                       /*resizable=*/true);
  return make_tensor(c10::Storage(std::move(storage)), c10::DispatchKey::PrivateUse1, cpu);
}

c10::Storage& CpuAliases::cpu_storage(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const void* key = storage.unsafeGetStorageImpl();
  if (storages_.size() <= kLinearSearch) {
    for (auto& pair : storages_) {
      if (pair.neuron.unsafeGetStorageImpl() == key) return pair.cpu;
    }
  } else {
    if (storage_index_.empty()) {
      for (size_t i = 0; i < storages_.size(); ++i) storage_index_[storages_[i].neuron.unsafeGetStorageImpl()] = i;
    }
    auto [found, inserted] = storage_index_.try_emplace(key, storages_.size());
    if (!inserted) return storages_[found->second].cpu;
  }
  Block* block = block_of(storage.data_ptr());
  c10::DataPtr memory = block != nullptr ? share_block(block, c10::Device(at::kCPU))
                                         : c10::DataPtr(storage.mutable_data(), c10::Device(at::kCPU));
  auto alias = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(storage.nbytes()),
                                                     std::move(memory), c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.push_back({storage, c10::Storage(std::move(alias))});
  return storages_.back().cpu;
}

at::Tensor CpuAliases::to_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  const void* key = tensor.unsafeGetTensorImpl();
  if (tensors_.size() <= kLinearSearch) {
    for (auto& pair : tensors_) {
      if (pair.neuron.unsafeGetTensorImpl() == key) return pair.cpu;
    }
  } else {
    if (tensor_index_.empty()) {
      for (size_t i = 0; i < tensors_.size(); ++i) tensor_index_[tensors_[i].neuron.unsafeGetTensorImpl()] = i;
    }
    auto [found, inserted] = tensor_index_.try_emplace(key, tensors_.size());
    if (!inserted) return tensors_[found->second].cpu;
  }
  // Inference tensors refuse in-place updates elsewhere; an alias is private to the op and needs no version counter.
  c10::InferenceMode normal(false);
  tensors_.push_back({tensor, make_tensor(cpu_storage(tensor), c10::DispatchKey::CPU, tensor)});
  return tensors_.back().cpu;
}

bool CpuAliases::is_alias(const at::Tensor& result) const {
  for (const auto& pair : storages_) {
    if (pair.cpu.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl()) return true;
  }
  return false;
}

at::Tensor CpuAliases::to_neuron(const at::Tensor& result, c10::DeviceIndex device) {
  if (!result.defined()) return result;
  for (const auto& pair : tensors_) {
    if (pair.cpu.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return pair.neuron;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == at::kStrided, "neuron tensors are strided; got a result of layout ",
                              result.layout(), ". Move the input to the CPU first.");
  for (const auto& pair : storages_) {
    if (pair.cpu.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl()) {
      return make_tensor(pair.neuron, c10::DispatchKey::PrivateUse1, result);
    }
  }
  return adopt_tensor(result, device, /*take=*/true);
}

bool CpuAliases::push_back(c10::DeviceIndex device) {
  bool changed = false;
  for (auto& pair : storages_) {
    if (pair.cpu.data() == pair.neuron.data() && pair.cpu.nbytes() == pair.neuron.nbytes()) continue;
    changed = true;
    const size_t bytes = pair.cpu.nbytes();
    c10::DataPtr memory = pair.cpu.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, c10::Device(at::kCPU)));
    pair.neuron.unsafeGetStorageImpl()->set_data_ptr_noswap(adopt(std::move(memory), bytes, device));
    pair.neuron.set_nbytes(bytes);
  }
  for (auto& pair : tensors_) {
    auto* impl = pair.neuron.unsafeGetTensorImpl();
    const auto& cpu = pair.cpu;
    if (impl->sizes() == cpu.sizes() && impl->strides() == cpu.strides() &&
        impl->storage_offset() == cpu.storage_offset()) {
      continue;
    }
    changed = true;
    impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
  return changed;
}

}  // namespace neuron
