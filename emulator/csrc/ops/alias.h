// CPU tensors over the memory of neuron tensors, and back. Zero-copy in both directions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <unordered_map>

namespace neuron {

// A neuron tensor of the given metadata in fresh memory.
at::Tensor empty_neuron(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                        c10::DeviceIndex device);
// A neuron tensor over the CPU tensor's memory. With `take`, a storage that nobody else holds gives its memory away.
at::Tensor adopt_tensor(const at::Tensor& cpu, c10::DeviceIndex device, bool take);

// The aliases made for one call of an op: one CPU storage per neuron storage, one CPU tensor per neuron tensor, so that
// aliasing inside the op stays what it was.
class CpuAliases {
 public:
  at::Tensor to_cpu(const at::Tensor& tensor);

  // The neuron tensor a result stands for: the argument itself, a view of an argument's storage, or adopted memory.
  at::Tensor to_neuron(const at::Tensor& result, c10::DeviceIndex device);

  // True when `result` shares memory with an argument.
  bool is_alias(const at::Tensor& result) const;

  // After an op that may have resized arguments: size, strides and memory go back to the neuron tensors. True if any
  // changed.
  bool push_back(c10::DeviceIndex device);

 private:
  struct TensorPair {
    at::Tensor neuron, cpu;
  };
  struct StoragePair {
    c10::Storage neuron, cpu;
  };
  c10::Storage& cpu_storage(const at::Tensor& tensor);

  c10::SmallVector<TensorPair, 4> tensors_;
  c10::SmallVector<StoragePair, 4> storages_;
  // Long lists (foreach, fused optimizers) look up by hash.
  std::unordered_map<const void*, size_t> tensor_index_, storage_index_;
};

}  // namespace neuron
