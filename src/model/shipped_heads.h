// shipped_heads.h: head tables that come with the library, as kvtide heads wrote them.
#pragma once

#include <span>
#include <string_view>

namespace kvtide {

struct ShippedHeads {
  std::string_view model;  // SHA-256 of the model file
  std::string_view table;  // the text of heads_file.h
};

std::span<const ShippedHeads> shipped_head_texts();

}  // namespace kvtide
