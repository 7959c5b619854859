#include "text/token_roles.h"

#include <algorithm>
#include <iterator>

namespace kvtide {

bool is_end_marker(std::string_view token) {
  static constexpr std::string_view kEnds[] = {
      "<|im_end|>",      "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
      "<|end_of_turn|>", "<|end|>",       "<end_of_turn>",   "<turn|>",    "<eos>",
  };
  return std::find(std::begin(kEnds), std::end(kEnds), token) != std::end(kEnds);
}

bool is_control_like(std::string_view token) {
  return (token.size() > 4 && token.starts_with("<|") && token.ends_with("|>")) ||
         token == "<start_of_turn>" || token == "<end_of_turn>";
}

}  // namespace kvtide
