// session_world.h: sessions of every kind of memory, and what can be seen of them.
//
// Ownership: a world owns its model and its text; its session is made and destroyed by the trials.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/sample_model.h"

namespace kvtide::testing {

struct SessionKind {
  std::string name;
  SessionOptions options;
  Pos prefix = 40, end = 90;  // read before, and by, the operation
  SampleModel model = {.gain = 2.0f};
  std::string folder = {};  // of the goldens, instead of the model
  bool spills = false;      // into a file of the world's
};

inline std::vector<SessionKind> kinds_of_sessions() {
  SessionOptions plain;
  plain.context = 300;
  plain.threads = 2;
  plain.prefill_chunk = 16;
  std::vector<SessionKind> kinds = {{"full", plain},
                                    {"rolling", plain},
                                    {"q8_0, adapting", plain, 250, 300},
                                    {"windows", plain},
                                    {"carried", plain},
                                    {"procedural", plain, 270, 330},
                                    {"procedural, thinning", plain, 90, 200},
                                    {"procedural, spilling", plain, 90, 200}};
  kinds[1].options.rolling = Rolling{4, 48};
  kinds[1].options.exact = true;
  kinds[2].options.key_type = kinds[2].options.value_type = ElementType::q8_0;
  kinds[2].options.auto_attention = AutoAttention{64, 256};
  kinds[2].options.context = 600;
  kinds[2].model.head_dim = 32;
  kinds[3].model = {.architecture = "gemma3", .layers = 7, .window = 20, .own_head = false};
  kinds[3].options.slack = 8;
  kinds[4].folder = "zaya-f16";
  kinds[4].options.slack = 6;
  for (const std::size_t i : {1u, 3u, 4u}) kinds[i].options.checkpoints.every = 24;
  for (const std::size_t i : {5u, 6u, 7u}) {
    ProceduralOptions memory;
    memory.window = 64;
    memory.block = 32;
    memory.rows = 8;
    memory.summaries = 2;
    memory.levels = i == 5 ? 1 : 2;
    memory.shed_below = 0.001f;
    memory.decay = 0.5f;
    memory.level_rows = 12;
    memory.adapt = i == 5 ? Adapt::drift : Adapt::off;
    kinds[i].options.procedural = memory;
  }
  kinds[5].options.shadow = ShadowOptions{.every = 16};
  ProceduralOptions& thinning = *kinds[6].options.procedural;
  thinning.heads.kv_heads = 2;
  thinning.heads.needs = {{.induction = 1.0f}, {}, {}, {.induction = 1.0f}};
  thinning.full_rows = 40;
  kinds[7].options.procedural->heads = thinning.heads;
  kinds[7].options.procedural->full_rows = 40;
  kinds[7].spills = true;
  return kinds;
}

class SessionWorld {
 public:
  explicit SessionWorld(const SessionKind& kind)
      : kind_(kind),
        file_("sample.gguf", sample_model(kind.model).build().bytes),
        model(kind.folder.empty() ? file_.path() : KVTIDE_GOLDENS "/folders/" + kind.folder, {.threads = 1}),
        text_(random_tokens(1000, model.vocabulary(), 5)) {
    if (kind.spills) kind_.options.procedural->spill = file_.path() + ".spill";
    with_logits.logits_from = kind.end - 3;
    with_logits.on_logits = [this](Pos position, std::span<const float> row) {
      shown_ = hash_logits(row, shown_ + static_cast<std::uint64_t>(position));
    };
  }
  SessionWorld(const SessionWorld&) = delete;
  SessionWorld& operator=(const SessionWorld&) = delete;

  const SessionOptions& options() const { return kind_.options; }
  // A new session that has read `position` tokens.
  void make(Pos position) {
    shown_ = 0;
    session.emplace(model, options());
    read_to(position);
    seen_at_prefix = seen();
  }
  void read_to(Pos position) { session->read(text_from(session->position(), position)); }
  std::span<const TokenId> text_from(Pos first, Pos last) const {
    return std::span(text_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  }

  // Everything that a caller can see, but for the rows; those the logits of more text tell of.
  std::string seen() const {
    const Session& s = *session;
    std::string text = "position " + std::to_string(s.position()) + ", logits " +
                       std::to_string(hash_logits(s.logits())) + ", tokens";
    for (const TokenId token : s.tokens()) text += " " + std::to_string(token);
    text += ", rows " + std::to_string(s.rows()) + ", capacity " + std::to_string(s.context()) +
            ", attention " + std::to_string(s.attention_size().value_or(0)) + ", room " +
            std::to_string(s.room()) + ", checkpoints";
    for (const Pos at : s.checkpoints()) text += " " + std::to_string(at);
    if (const auto counts = s.procedural_counts())
      text += ", sealed " + std::to_string(counts->blocks_sealed) + ", consolidated " +
              std::to_string(counts->consolidations) + ", outliers " + std::to_string(counts->outlier_rows) +
              ", full rows " + std::to_string(counts->full_rows) + ", lost " +
              std::to_string(counts->shed_mass) + ", shed " + std::to_string(counts->shed_soft) + " " +
              std::to_string(counts->shed_hard) + ", thinned " + std::to_string(counts->thinned);
    if (const auto drift = s.drift())
      text += ", sampled " + std::to_string(drift->tokens) + ", " + std::to_string(drift->output.mean);
    for (const AttentionChange& change : s.attention_changes())
      text += ", size " + std::to_string(change.size);
    return text;
  }
  std::string seen_after_more() {
    const auto more = static_cast<Pos>(std::min<std::int64_t>(40, session->room()));
    for (Pos step = 0; step < more; step += 20) read_to(session->position() + std::min<Pos>(20, more - step));
    return seen() + ", shown " + std::to_string(shown_);
  }

 private:
  SessionKind kind_;
  TemporaryFile file_;

 public:
  Model model;
  std::optional<Session> session;
  ReadOptions with_logits;
  std::string seen_at_prefix;

 private:
  std::vector<TokenId> text_;
  std::uint64_t shown_ = 0;
};

}  // namespace kvtide::testing
