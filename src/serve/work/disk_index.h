// disk_index.h: which texts lie on the disk as snapshots, which of them spares most reading, and which goes first.
//
// Plain data; no file is touched. Thread rules: one caller.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "serve/work/memory_choice.h"

namespace kvtide::serve {

struct DiskEntry {
  std::string file;   // its name in the folder
  std::string model;  // SHA-256 of the model, and how it computes
  MemoryKind kind;
  std::vector<TokenId> tokens;
  std::int64_t bytes = 0;  // of the file
  double used = 0;         // seconds since 1970

  std::vector<Pos> checkpoints = {};

  // The shortest text that it can surely be cut to.
  std::int64_t least_length() const;
  // The most of its first `same` tokens that it can surely be cut to.
  std::int64_t left_of(std::int64_t same) const;
};

class DiskIndex {
 public:
  struct Hit {
    const DiskEntry* entry = nullptr;
    std::int64_t length = 0;  // tokens that need not be read
  };
  // Of the entries of this model and kind, the one that goes furthest along with the text.
  Hit find(const std::string& model, std::span<const TokenId> text, const MemoryKind& kind) const;

  void add(DiskEntry entry);
  // False: it was not there.
  bool remove(const std::string& file);
  void touch(const std::string& file, double now);
  // Entries that this one can stand for in every way.
  std::vector<std::string> covered_by(const DiskEntry& entry) const;
  // The entry whose loss costs least: reading it again, per byte and per second since its last use. nullptr: none is left.
  const DiskEntry* first_to_go(double now) const;

  std::int64_t bytes() const { return bytes_; }  // of all files
  std::size_t size() const { return entries_.size(); }

 private:
  std::list<DiskEntry> entries_;
  std::int64_t bytes_ = 0;
};

}  // namespace kvtide::serve
