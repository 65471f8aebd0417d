#pragma once

#include <c10/core/StorageImpl.h>

namespace neuron {

// Tells torch about the device; once, at load.
void register_hooks();

// Reallocates a neuron storage and keeps its contents.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

}  // namespace neuron
