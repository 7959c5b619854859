#include "coreml/decode/decoder.h"

#include <utility>

#include "base/refuse.h"
#include "base/text.h"
#include "coreml/decode/chunked_decoder.h"
#include "coreml/decode/masked_decoder.h"
#include "coreml/decode/packages_at.h"
#include "coreml/decode/packages_manifest.h"
#include "coreml/decode/whole_decoder.h"

namespace kvtide::coreml {

std::vector<float> Decoder::read(std::span<const TokenId> ids, std::int64_t chunk) {
  if (ids.empty()) refuse("no tokens: there is nothing to go on from");
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count > slots_ - position())
    throw Error(ErrorCode::context_full, cat(count, " tokens do not fit: ", slots_ - position(), " of ",
                                             slots_, " rows of the states are free"));
  std::vector<float> logits;
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t left = count - at;
    const std::int64_t size = size_of_call(left, chunk > 0 ? chunk : left);
    if (size <= 0)
      refuse(cat("the package takes no call of ", chunk > 0 ? std::min(chunk, left) : left,
                 " tokens or fewer; kvtide coreml inspect shows what it takes"));
    const auto piece = ids.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
    std::vector<TokenId>& tokens = sequence_.tokens;
    tokens.reserve(tokens.size() + piece.size());  // before the states hold them
    logits = call(piece, size == left);
    tokens.insert(tokens.end(), piece.begin(), piece.end());
    at += size;
    ++calls_;
  }
  return logits;
}

void Decoder::reset() { sequence_ = empty(); }

Sequence Decoder::exchange(Sequence next) { return std::exchange(sequence_, std::move(next)); }

Sequence Sequence::fork() const {
  Sequence copy{tokens, {}};
  for (const CoremlState& state : states) copy.states.push_back(state.fork());
  return copy;
}

namespace {

[[noreturn]] void refuse_rows() {
  throw Error(ErrorCode::unsupported,
              "this package does not say which of its states holds the keys of which layer");
}

}  // namespace

std::vector<LayerRows> Decoder::rows() const { refuse_rows(); }
std::vector<CoremlState> Decoder::states_with(std::int64_t, const std::vector<LayerRows>&) const {
  refuse_rows();
}

void Decoder::fill_unread(std::uint16_t) { refuse_rows(); }
void Decoder::truncate(std::int64_t count) { sequence_.tokens.resize(static_cast<std::size_t>(count)); }

void Decoder::restore(std::vector<TokenId> tokens, const std::vector<LayerRows>& rows) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count > slots_)
    throw Error(ErrorCode::context_full,
                cat(count, " tokens do not fit into ", slots_, " rows of the states"));
  sequence_.states = states_with(count, rows);
  sequence_.tokens = std::move(tokens);
}

std::int64_t Decoder::state_bytes() const {
  std::int64_t bytes = 0;
  for (const CoremlState& state : states()) bytes += state.bytes();
  return bytes;
}

std::unique_ptr<Decoder> open_decoder(const std::string& path, const CoremlOptions& options) {
  const std::string meta = meta_yaml_at(path);
  auto decoder = [&] {
    if (!meta.empty()) return open_chunked_decoder(meta, options);
    if (is_packages_folder(path)) return open_masked_folder(path, options);
    return open_whole_decoder(path, options);
  }();
  decoder->reset();
  return decoder;
}

}  // namespace kvtide::coreml
