// pack.h: GGUF rows of blocks into panels of 16 rows (tensor/panel.h). Lossless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace kvtide {

// What the bytes of a packed matrix mean. Files keep such bytes (formats/packed_file.h), and are good for one
// layout only: whoever changes what pack_panel() or panel_bytes() give raises the version.
struct PackedLayout {
  std::uint32_t version;
  std::string_view kernels;  // the table that wants it so; "any": all tables read the same bytes
};
constexpr PackedLayout packed_layout() { return {1, "any"}; }

// Bytes of one panel of k columns. The type must have a panel form and k be a multiple of its block.
std::int64_t panel_bytes(DType dtype, std::int64_t k);

// Packs up to 16 rows; rows[i] points to the blocks of row i, nullptr for a row of zeros.
void pack_panel(DType dtype, const std::byte* const rows[16], std::int64_t k, std::byte* panel);

}  // namespace kvtide
