// golden_folder.h: a reference that was computed elsewhere: a folder of NumPy files (docs/validator.md).
//
// tokens.npy, and any of hidden.npy, logits.npy, keys.L.npy and values.L.npy, frequencies.L.npy,
// continuation.npy.
// Ownership: owns the arrays.
// Thread rules: one caller at a time.
#pragma once

#include <string>
#include <vector>

#include "kvtide/validate.h"

namespace kvtide {

class GoldenFolder final : public Reference {
 public:
  // Throws Error: not_found (no tokens.npy), bad_format (arrays whose shapes do not fit one another, numbers
  // that are not finite).
  explicit GoldenFolder(const std::string& path);

  std::string name() const override { return path_; }
  std::optional<std::vector<TokenId>> text() const override { return golden_.tokens; }
  std::vector<TokenId> continuation() const override { return continuation_; }
  Golden run(std::span<const TokenId> tokens) override;  // a beginning of text()
  std::vector<double> frequencies(int layer) const override;

 private:
  std::string path_;
  Golden golden_;
  std::vector<TokenId> continuation_;
  std::vector<std::vector<double>> frequencies_;
};

}  // namespace kvtide
