// packed_binding.h: whose packed weights a file holds: the model's files, and what packed them.
#pragma once

#include <cstdint>
#include <string>

#include "formats/packed_file.h"
#include "model/checkpoint.h"

namespace kvtide {

// `model` is a SHA-256 over the size of every file of weights, of its first and last 64 KiB and of 256 blocks of
// 4 KiB in even steps (of a small file of all bytes): a hash of all of it would take longer than packing does. A model of another shape or
// type differs in its sizes and its header, another training of the same shape in every block. What changes a
// few numbers in place could pass between the blocks; it is told by `time`, the times of last change.
// Throws Error: not_found, io.
PackedBinding packed_binding(const Checkpoint& checkpoint);

// All files of weights together. Throws as above.
std::int64_t weight_file_bytes(const Checkpoint& checkpoint);

}  // namespace kvtide
