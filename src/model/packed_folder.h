// packed_folder.h: a folder of packed weights: the names in it, what was looked at since the machine was started, and
// what has to go when it is full.
//
//   MODEL-HASH-KERNELS.packed   the packed weights of the model at one path
//   NUMBERS.checked             that all sums of such a file were right, and at which start of the machine
//
// Ownership: none; other processes use, fill and empty the folder at the same time.
// Thread rules: const from any thread.
// Nothing here fails: what cannot be read is not there, what cannot be written is done without.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace kvtide {

class PackedFolder {
 public:
  // boot: which start of the machine this is (base/boot_id.h); empty: nobody knows, and no look counts.
  PackedFolder(std::string folder, FileSystem& files, std::string boot)
      : folder_(std::move(folder)), files_(files), boot_(std::move(boot)) {}

  const std::string& path() const { return folder_; }
  // Where the packed weights of a model belong.
  std::string place_of(const std::string& model, std::string_view kernels) const;

  // Whether all sums of `file`, in this folder or elsewhere, were right since the machine was started.
  bool was_checked(const std::string& file) const;
  void set_checked(const std::string& file) const noexcept;
  // It was used now: others go before it.
  void touch(const std::string& file) const noexcept;

  // Makes the folder, and room for `bytes` at `place`: removes what killed processes left, notes of earlier starts,
  // and of other models those that were used longest ago. Empty: there is room; otherwise why there is none.
  std::string make_room(const std::string& place, std::int64_t bytes, std::int64_t limit) const;

 private:
  std::string note_of(const std::string& file) const;  // empty: there is no such file
  void remove_old_notes() const;

  std::string folder_;
  FileSystem& files_;
  std::string boot_;
};

}  // namespace kvtide
