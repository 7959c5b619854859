#include "coreml/decode/chunked_decoder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "coreml/decode/cache_layout.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/chosen_tokens.h"
#include "coreml/decode/meta_yaml.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace chunked_decoder_details {

struct Part {
  std::string name;
  CoremlModel model;
};

Part open_part(const std::string& path, const CoremlOptions& options) {
  return {std::filesystem::path(path).lexically_normal().filename().string(), CoremlModel(path, options)};
}

const CoremlFunction* function_named(const CoremlModel& model, std::string_view name) {
  for (const CoremlFunction& each : model.functions())
    if (each.name == name) return &each;
  return nullptr;
}

// "infer", or the only function of a package that reads one token a call.
const CoremlFunction& infer_of(const CoremlModel& model) {
  const CoremlFunction* infer = function_named(model, "infer");
  return infer != nullptr ? *infer : model.function();
}

// Rows of the shortest cache; 0: there is none.
std::int64_t shortest_cache(const CoremlFunction& function) {
  std::int64_t rows = 0;
  for (const CoremlFeature& state : function.states)
    if (state.shape.size() >= 3) {
      const std::int64_t here = state.shape[state.shape.size() - 2];
      rows = rows == 0 ? here : std::min(rows, here);
    }
  return rows;
}

bool same_states(const CoremlFunction& a, const CoremlFunction& b) {
  return std::equal(a.states.begin(), a.states.end(), b.states.begin(), b.states.end(),
                    [](const CoremlFeature& x, const CoremlFeature& y) {
                      return x.name == y.name && x.shape == y.shape && x.type == y.type;
                    });
}

// Rows that a chunk attends to; 0: its mask does not say.
std::int64_t length_of_mask(const CoremlFunction& function) {
  const auto* mask = feature_named(function.inputs, "causal_mask");
  return mask == nullptr || mask->shape.empty() ? 0 : mask->shape.back();
}

[[noreturn]] void refuse_part(const Part& part, const CoremlFunction& function, std::string_view why) {
  throw Error(ErrorCode::unsupported,
              cat(part.name, ": ", why, "; function ", function.name, " has ", signature_of(function)));
}

class ChunkedDecoder final : public Decoder {
 public:
  // embeddings and head: absent when the only chunk goes from ids to logits.
  ChunkedDecoder(std::optional<Part> embeddings, std::vector<Part> chunks, std::optional<Part> head,
                 VocabularyParts vocabulary, std::int64_t slots)
      : Decoder(slots),
        embeddings_(std::move(embeddings)),
        chunks_(std::move(chunks)),
        head_(std::move(head)),
        vocabulary_(std::move(vocabulary)) {
    check();
    share_states();
  }

  ContractKind kind() const override { return ContractKind::positions; }
  // prefill has no logits for every token, so the last one is read by infer.
  std::int64_t size_of_call(std::int64_t left, std::int64_t most) const override {
    const bool crosses = !rotates() && window_ > 0 && position() + batch_ > window_;
    const bool batched = batch_ > 0 && left > batch_ && most >= batch_ && !crosses;
    return batched && (!rotates() || prefill_rotates_) ? batch_ : 1;
  }
  std::vector<PartTime> parts() const override {
    std::vector<PartTime> parts;
    const auto add = [&](const Part& part) {
      const CoremlReport report = part.model.report();
      parts.push_back({part.name, report.calls, report.seconds});
    };
    if (embeddings_) add(*embeddings_);
    for (const Part& chunk : chunks_) add(chunk);
    if (head_) add(*head_);
    return parts;
  }
  std::int64_t state_bytes_copied() const override {
    std::int64_t bytes = 0;
    for (const Part& chunk : chunks_) bytes += chunk.model.report().state_bytes_copied;
    return bytes;
  }
  std::int64_t weight_bytes() const override {
    std::int64_t bytes = 0;
    for (const Part& chunk : chunks_) bytes += chunk.model.report().weight_bytes;
    if (embeddings_) bytes += embeddings_->model.report().weight_bytes;
    if (head_) bytes += head_->model.report().weight_bytes;
    return bytes;
  }
  bool chooses() const override {
    return chooses_tokens(head_ ? head_->model.function() : infer_of(chunks_.back().model));
  }
  std::vector<LayerRows> rows() const override;
  void fill_unread(std::uint16_t half) override {
    for (std::size_t i = 0; i < owners_.size(); ++i)
      fill_rows(states()[i], layout_of(owners_[i]), position(), half);
  }

 private:
  void check();
  void check_chunk(const Part& chunk, const CoremlFunction& function) const;
  void check_rotation();
  // A cache of a window is full: functions of their own shift its rows.
  bool rotates() const { return window_ > 0 && position() >= window_; }
  const CoremlFunction& function_for(const CoremlModel& model, std::int64_t tokens) const;
  std::vector<float> call(std::span<const TokenId> ids, bool last) override;
  std::vector<CoremlState> empty_states() const override;
  std::vector<CoremlState> states_with(std::int64_t count, const std::vector<LayerRows>& rows) const override;
  CacheLayout layout_of(std::size_t owner) const {
    const Part& chunk = chunks_[owner];
    return cache_layout_of(infer_of(chunk.model).states, chunk.name);
  }
  void share_states();
  CoremlArray run_chunk(std::size_t number, const CoremlFunction& function, CoremlArray x,
                        std::int64_t tokens, std::map<std::string, CoremlArray>& outputs);
  std::vector<float> logits_in(const Part& part, const CoremlFunction& function,
                               const std::map<std::string, CoremlArray>& outputs) const;

  std::optional<Part> embeddings_;
  std::vector<Part> chunks_;
  std::optional<Part> head_;
  VocabularyParts vocabulary_;
  std::int64_t batch_ = 0;                   // tokens of prefill; 0: there is none
  std::int64_t window_ = 0;                  // rows behind which infer_rotate reads; 0: it is not there
  bool prefill_rotates_ = false;             // whether prefill_rotate is there
  std::vector<std::size_t> owners_;          // the first chunk of each state
  std::vector<std::size_t> state_of_chunk_;  // which of the states
};

void ChunkedDecoder::check_chunk(const Part& chunk, const CoremlFunction& function) const {
  for (const char* name : {"position_ids", "causal_mask", "current_pos"})
    if (feature_named(function.inputs, name) == nullptr)
      refuse_part(chunk, function,
                  cat("a chunk takes ", embeddings_ ? "hidden_states" : "input_ids",
                      ", position_ids, causal_mask and current_pos; it lacks ", name));
  if (function.inputs.size() != 4) refuse_part(chunk, function, "a chunk takes four inputs");
  if (feature_named(function.inputs, "position_ids")->shape.size() != 1)
    refuse_part(chunk, function, "position_ids must be [T]");
  if (length_of_mask(function) != slots() || slots() < 1)
    refuse_part(chunk, function, cat("causal_mask must be [1, 1, T, ", slots(), "] in every chunk"));
  if (head_ && function.outputs.size() != 1) refuse_part(chunk, function, "a chunk gives hidden states only");
}

void ChunkedDecoder::check() {
  std::int64_t batch = -1;
  for (const Part& chunk : chunks_) {
    check_chunk(chunk, infer_of(chunk.model));
    const CoremlFunction* prefill = function_named(chunk.model, "prefill");
    if (prefill != nullptr) check_chunk(chunk, *prefill);
    const std::int64_t here =
        prefill == nullptr ? 0 : feature_named(prefill->inputs, "position_ids")->shape[0];
    if (batch >= 0 && here != batch)
      refuse_part(chunk, infer_of(chunk.model),
                  cat("prefill takes ", here, " tokens, the chunk before it ", batch));
    batch = here;
  }
  batch_ = std::max<std::int64_t>(batch, 0);
  check_rotation();
  if (embeddings_ &&
      (embeddings_->model.function().inputs.size() != 1 || embeddings_->model.function().outputs.size() != 1))
    refuse_part(*embeddings_, embeddings_->model.function(), "embeddings take ids and give hidden states");
  if (!head_) return;
  const CoremlFunction& head = head_->model.function();
  if (head.inputs.size() != 1) refuse_part(*head_, head, "a head takes hidden states only");
  if (logits_of(head).empty() && !chooses_tokens(head))
    refuse_part(*head_, head, "the head gives no output named logits, nor argmax_idx and argmax_val");
}

void ChunkedDecoder::check_rotation() {
  const CoremlModel& first = chunks_.front().model;
  const bool rotates = function_named(first, "infer_rotate") != nullptr;
  prefill_rotates_ = function_named(first, "prefill_rotate") != nullptr;
  if (rotates) window_ = shortest_cache(infer_of(first));
  for (const Part& chunk : chunks_) {
    const CoremlFunction *one = function_named(chunk.model, "infer_rotate"),
                         *many = function_named(chunk.model, "prefill_rotate");
    if ((one != nullptr) != rotates || (many != nullptr) != prefill_rotates_ ||
        (prefill_rotates_ && !rotates))
      refuse_part(chunk, infer_of(chunk.model),
                  "infer_rotate must be in all chunks or in none, and prefill_rotate with it");
    if (one != nullptr) check_chunk(chunk, *one);
    if (many == nullptr) continue;
    check_chunk(chunk, *many);
    if (feature_named(many->inputs, "position_ids")->shape[0] != batch_)
      refuse_part(chunk, *many, cat("prefill takes ", batch_, " tokens, and prefill_rotate another number"));
  }
}

const CoremlFunction& ChunkedDecoder::function_for(const CoremlModel& model, std::int64_t tokens) const {
  if (tokens > 1) return model.function(rotates() ? "prefill_rotate" : "prefill");
  return rotates() ? model.function("infer_rotate") : infer_of(model);
}

// Chunks whose states have the same names, shapes and types share them.
void ChunkedDecoder::share_states() {
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const CoremlFunction& function = infer_of(chunks_[i].model);
    std::size_t shared = 0;
    while (shared < i && !same_states(function, infer_of(chunks_[shared].model))) ++shared;
    if (shared == i) owners_.push_back(i);
    state_of_chunk_.push_back(shared < i ? state_of_chunk_[shared] : owners_.size() - 1);
  }
}

std::vector<CoremlState> ChunkedDecoder::empty_states() const {
  std::vector<CoremlState> states;
  for (const std::size_t chunk : owners_)
    states.push_back(chunks_[chunk].model.make_state(infer_of(chunks_[chunk].model).name));
  return states;
}

// States that chunks do not share hold their layers one after another.
std::vector<LayerRows> ChunkedDecoder::rows() const {
  std::vector<LayerRows> layers;
  for (std::size_t i = 0; i < owners_.size(); ++i)
    for (LayerRows& rows :
         rows_in(sequence().states[i], layout_of(owners_[i]), static_cast<int>(layers.size()), position()))
      layers.push_back(std::move(rows));
  return layers;
}

std::vector<CoremlState> ChunkedDecoder::states_with(std::int64_t count,
                                                     const std::vector<LayerRows>& rows) const {
  std::vector<CoremlState> states = empty_states();
  std::span<const LayerRows> left = rows;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    const CacheLayout layout = layout_of(owners_[i]);
    const bool last = i + 1 == owners_.size();
    const std::size_t mine = last ? left.size() : std::min(left.size(), layout.layers.size());
    put_rows(states[i], layout, left.first(mine), count);
    left = left.subspan(mine);
  }
  return states;
}

CoremlArray ChunkedDecoder::run_chunk(std::size_t number, const CoremlFunction& function, CoremlArray x,
                                      std::int64_t tokens, std::map<std::string, CoremlArray>& outputs) {
  std::vector<TokenId> positions(static_cast<std::size_t>(tokens));
  for (std::int64_t i = 0; i < tokens; ++i)
    positions[static_cast<std::size_t>(i)] = static_cast<TokenId>(position() + i);
  std::map<std::string, CoremlArray> inputs;
  for (const CoremlFeature& input : function.inputs) {
    if (input.name == "position_ids") {
      inputs[input.name] = ids_array({tokens}, positions);
    } else if (input.name == "current_pos") {
      inputs[input.name] = ids_array({1}, std::span(positions).first(1));
    } else if (input.name == "causal_mask") {
      inputs[input.name] = causal_mask(tokens, position(), input.shape.back());
    } else {
      inputs[input.name] = std::move(x);
    }
  }
  outputs = chunks_[number].model.predict(inputs, &states()[state_of_chunk_[number]], function.name);
  return outputs.begin()->second;
}

std::vector<float> ChunkedDecoder::logits_in(const Part& part, const CoremlFunction& function,
                                             const std::map<std::string, CoremlArray>& outputs) const {
  if (chooses_tokens(function)) return logits_of_chosen(outputs, vocabulary_, part.name);
  std::vector<float> logits;
  for (const std::string& name : logits_of(function)) {
    const std::vector<float> row = last_row(outputs.at(name), name);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  if (logits.empty()) refuse_part(part, function, "none of its outputs is named logits");
  return logits;
}

std::vector<float> ChunkedDecoder::call(std::span<const TokenId> ids, bool last) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  CoremlArray x = ids_array({1, tokens}, ids);
  if (embeddings_) {
    const CoremlFunction& function = embeddings_->model.function();
    x = embeddings_->model.predict({{function.inputs.front().name, std::move(x)}}).begin()->second;
  }
  std::map<std::string, CoremlArray> outputs;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    x = run_chunk(i, function_for(chunks_[i].model, tokens), std::move(x), tokens, outputs);
  }
  if (!last) return {};
  if (!head_) return logits_in(chunks_.back(), function_for(chunks_.back().model, 1), outputs);
  const CoremlFunction& function = head_->model.function();
  outputs = head_->model.predict({{function.inputs.front().name, std::move(x)}});
  return logits_in(*head_, function, outputs);
}

}  // namespace chunked_decoder_details

using namespace chunked_decoder_details;

std::unique_ptr<Decoder> open_chunked_decoder(const std::string& path, const CoremlOptions& options) {
  const MetaYaml meta = read_meta_yaml(path);
  Part embeddings = open_part(meta.embeddings, options), head = open_part(meta.head, options);
  std::vector<Part> chunks;
  for (const std::string& chunk : meta.chunks) chunks.push_back(open_part(chunk, options));
  const std::int64_t slots = length_of_mask(infer_of(chunks.front().model));
  return std::make_unique<ChunkedDecoder>(std::move(embeddings), std::move(chunks), std::move(head),
                                          meta.vocabulary, slots);
}

std::unique_ptr<Decoder> open_single_chunk(const std::string& path, const CoremlOptions& options) {
  std::vector<Part> chunks;
  chunks.push_back(open_part(path, options));
  const std::int64_t slots = length_of_mask(infer_of(chunks[0].model));
  return std::make_unique<ChunkedDecoder>(std::nullopt, std::move(chunks), std::nullopt, VocabularyParts{},
                                          slots);
}

}  // namespace kvtide::coreml
