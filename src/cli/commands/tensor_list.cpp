#include "cli/commands/tensor_list.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "cli/commands/inspect_folder.h"
#include "cli/output/terminal.h"

namespace kvtide {
namespace {

struct Kind {
  ListedTensor first;  // with its bytes those of all
  std::int64_t count = 0;
};

// "blk.*.attn_k.weight": parts of a name that are numbers do not count.
std::string kind_name(const std::string& name) {
  std::string kind;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, dot - at);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](unsigned char c) { return std::isdigit(c) != 0; });
    kind += cat(at == 0 ? "" : ".", number ? "*" : part);
    at = dot + 1;
  }
  return kind;
}

std::string line_of(const ListedTensor& tensor, const std::string& count) {
  std::string shape;
  for (const std::int64_t extent : tensor.shape) shape += cat(shape.empty() ? "" : " x ", extent);
  return cat("  ", column(shown(tensor.name), 44), " ", count, column(tensor.type, 7), column(shape, 20), " ",
             bytes_text(tensor.bytes), "\n");
}

}  // namespace

std::string tensor_lines(const std::vector<ListedTensor>& tensors, bool all) {
  std::string text;
  if (all) {
    for (const ListedTensor& tensor : tensors) text += line_of(tensor, "");
    return text;
  }
  std::vector<Kind> kinds;
  for (const ListedTensor& tensor : tensors) {
    const std::string name = kind_name(tensor.name);
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) {
      return kind.first.name == name && kind.first.type == tensor.type && kind.first.shape == tensor.shape;
    });
    if (known == kinds.end()) {
      kinds.push_back({{name, tensor.type, tensor.shape, tensor.bytes}, 1});
    } else {
      known->first.bytes += tensor.bytes;
      ++known->count;
    }
  }
  for (const Kind& kind : kinds) text += line_of(kind.first, column(cat(kind.count, " x"), 7));
  return text + (kinds.size() < tensors.size() ? "  (-v lists every tensor)\n" : "");
}

}  // namespace kvtide
