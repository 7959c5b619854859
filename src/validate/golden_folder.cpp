#include "validate/golden_folder.h"

#include <algorithm>
#include <cmath>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "formats/npy.h"
#include "formats/text_file.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse_file(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::bad_format, cat(file, ": ", why));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t extent : shape) out += cat(out.size() > 1 ? ", " : "", extent);
  return out + "]";
}

std::vector<float> finite_floats(const NpyArray& array, const std::string& file) {
  if (std::any_of(array.numbers.begin(), array.numbers.end(), [](double x) { return !std::isfinite(x); }))
    refuse_file(file, "it holds NaN or infinity; a reference must be finite");
  return array.floats();
}

std::vector<TokenId> token_ids(const NpyArray& array, const std::string& file) {
  if (array.shape.size() != 1) refuse_file(file, cat("ids are one row, not ", shape_text(array.shape)));
  std::vector<TokenId> ids;
  for (const double id : array.numbers) {
    if (!(id >= 0.0 && id < 0x1p31 && id == std::floor(id))) refuse_file(file, cat("a token id is ", id));
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace

GoldenFolder::GoldenFolder(const std::string& path) : path_(path) {
  const auto file = [&](const std::string& name) { return path + "/" + name + ".npy"; };
  if (!file_exists(file("tokens")))
    throw Error(ErrorCode::not_found,
                cat(path, ": there is no tokens.npy; tools/references/golden_arrays.py makes such folders"));
  golden_.tokens = token_ids(read_npy(file("tokens")), file("tokens"));
  const std::int64_t n = golden_.size();
  if (file_exists(file("logits"))) {
    const NpyArray array = read_npy(file("logits"));
    if (array.shape.size() != 2 || array.shape[0] != n)
      refuse_file(file("logits"),
                  cat("its shape is ", shape_text(array.shape), "; [", n, ", vocabulary] is expected"));
    golden_.vocab = array.shape[1];
    golden_.logits = finite_floats(array, file("logits"));
  }
  if (file_exists(file("hidden"))) {
    const NpyArray array = read_npy(file("hidden"));
    if (array.shape.size() != 3 || array.shape[1] != n || array.shape[0] < 2)
      refuse_file(file("hidden"), cat("its shape is ", shape_text(array.shape), "; [layers + 1, ", n,
                                      ", width] is expected"));
    golden_.layers = array.shape[0] - 1;
    golden_.width = array.shape[2];
    golden_.hidden = finite_floats(array, file("hidden"));
  }
  if (golden_.hidden.empty() && golden_.logits.empty())
    throw Error(ErrorCode::not_found, cat(path, ": there is neither hidden.npy nor logits.npy"));
  for (std::int64_t layer = 0; layer < golden_.layers; ++layer) {
    const std::string keys = file(cat("keys.", layer)), values = file(cat("values.", layer)),
                      frequencies = file(cat("frequencies.", layer));
    frequencies_.push_back(file_exists(frequencies) ? read_npy(frequencies).numbers : std::vector<double>());
    if (file_exists(keys) != (layer == 0 ? file_exists(values) : !golden_.rows.empty()) ||
        file_exists(keys) != file_exists(values))
      refuse_file(keys, "keys and values are there for every layer or for none");
    if (!file_exists(keys)) continue;
    const NpyArray k = read_npy(keys), v = read_npy(values);
    if (k.shape.size() != 3 || k.shape[1] != n || k.shape != v.shape)
      refuse_file(keys, cat("its shape is ", shape_text(k.shape), "; [KV heads, ", n,
                            ", head size] is expected, as in the values' file"));
    if (2 * static_cast<std::int64_t>(frequencies_.back().size()) > k.shape[2])
      refuse_file(frequencies, "it has more pairs than a head has dimensions");
    golden_.rows.push_back({k.shape[0], n, k.shape[2], 0, finite_floats(k, keys), finite_floats(v, values)});
  }
  if (file_exists(file("continuation")))
    continuation_ = token_ids(read_npy(file("continuation")), file("continuation"));
}

Golden GoldenFolder::run(std::span<const TokenId> tokens) {
  if (tokens.size() > golden_.tokens.size() ||
      !std::equal(tokens.begin(), tokens.end(), golden_.tokens.begin()))
    throw Error(ErrorCode::unsupported, cat(path_, ": it knows one text, and this is another"));
  if (tokens.size() == golden_.tokens.size()) return golden_;
  // The beginning: what comes later changes nothing before it.
  const auto n = static_cast<std::int64_t>(tokens.size());
  Golden out;
  out.tokens.assign(tokens.begin(), tokens.end());
  out.layers = golden_.layers;
  out.width = golden_.width;
  out.vocab = golden_.vocab;
  const auto take = [&](const std::vector<float>& from, std::int64_t blocks, std::int64_t row,
                        std::vector<float>& to) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto first = from.begin() + block * golden_.size() * row;
      to.insert(to.end(), first, first + n * row);
    }
  };
  if (!golden_.hidden.empty()) take(golden_.hidden, golden_.layers + 1, golden_.width, out.hidden);
  if (!golden_.logits.empty()) take(golden_.logits, 1, golden_.vocab, out.logits);
  for (const HeldRows& rows : golden_.rows) {
    HeldRows& cut = out.rows.emplace_back();
    cut.kv_heads = rows.kv_heads;
    cut.rows = n;
    cut.head_dim = rows.head_dim;
    take(rows.keys, rows.kv_heads, rows.head_dim, cut.keys);
    take(rows.values, rows.kv_heads, rows.head_dim, cut.values);
  }
  return out;
}

std::vector<double> GoldenFolder::frequencies(int layer) const {
  return static_cast<std::size_t>(layer) < frequencies_.size() ? frequencies_[static_cast<std::size_t>(layer)]
                                                               : std::vector<double>();
}

std::unique_ptr<Reference> golden_reference(const std::string& folder) try {
  return std::make_unique<GoldenFolder>(folder);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
