// packed_file.h: the packed matrices of a model in a file that processes map and share: docs/checkpoints.md, "Packed weights".
//
// What a packed matrix holds is not known here: bytes, which layout they have, and whose they are.
// Ownership: PackedFile owns the mapping; bytes() are valid while it lives, also after a move and after the file
// was removed or replaced.
// Thread rules: const members from any thread.
// Invariants (each is refused otherwise)
//   1. The file is exactly as long as its end says: nothing that is missing can be touched.
//   2. Matrices lie side by side in the order of the table, each on pages of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace kvtide {

// What a file was made of and for: one that differs in any of these is of no use.
struct PackedBinding {
  std::string model;         // what the weights are: a hash
  std::string time;          // when they were written
  std::string program;       // the version that packed them
  std::uint32_t layout = 0;  // what the bytes mean, and
  std::string kernels;       // to which kernel table
  bool operator==(const PackedBinding&) const = default;
};

// Rows [first, first + rows) of a tensor. Without bytes: it is used where it lies in its own file.
struct PackedMatrix {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t first = 0, rows = 0, columns = 0;
  bool ordered = false;  // its rows stand in an order of their own
  std::uint64_t bytes = 0;

  bool operator==(const PackedMatrix&) const = default;
};

class PackedFile {
 public:
  // Checks all but the matrices' sums. Throws Error: not_found, bad_format, unsupported (another version), io.
  explicit PackedFile(const std::string& path);
  // Bytes that are in memory already, aligned to 8 and outliving the result; `name` is for messages.
  static PackedFile from_bytes(std::span<const std::byte> bytes, std::string name);

  const PackedBinding& binding() const { return binding_; }
  std::span<const PackedMatrix> matrices() const { return matrices_; }
  std::span<const std::byte> bytes(std::size_t matrix) const;  // starts at a multiple of 4096 of the file
  std::span<const std::byte> all_bytes() const { return bytes_; }

  // The pages leave the resident set and come back when they are touched.
  void release() const noexcept { file_.release(0, bytes_.size()); }

  // Reads everything. Throws Error(bad_format) naming a matrix whose sum is another.
  void verify(ThreadPool& pool) const;

 private:
  PackedFile() = default;
  void read_end();
  void read_table(std::string_view text);
  [[noreturn]] void refuse(const std::string& why) const;

  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::string name_;
  PackedBinding binding_;
  std::vector<PackedMatrix> matrices_;
  std::vector<std::uint64_t> offsets_;  // of the matrices
  std::vector<std::uint32_t> sums_;
};

// Writes a file front to back. Matrices are announced in the order in which their bytes come.
class PackedWriter {
 public:
  PackedWriter(const FileSink& sink, PackedBinding binding);

  void begin(const PackedMatrix& matrix);        // the one before must be complete
  void write(std::span<const std::byte> bytes);  // of the matrix that was begun last
  void finish();                                 // once

 private:
  void put(std::span<const std::byte> bytes);
  void close_matrix();

  const FileSink& sink_;
  PackedBinding binding_;
  std::vector<PackedMatrix> matrices_;
  std::vector<std::uint32_t> sums_;
  std::uint64_t written_ = 0;  // of the file
  std::uint32_t sum_ = 0;      // of the matrix that is open
  bool open_ = false;
};

}  // namespace kvtide
