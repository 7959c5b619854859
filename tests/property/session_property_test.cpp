// Made-up sequences through sessions with a tiny real model: whatever way a memory came to be what it is, its
// next logits are, bit for bit, those of a session that simply read the same text under the same schedule.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"
#include "tests/property/shrink.h"

namespace kvtide {
namespace {

using testing::Rng;
using testing::same_bits;

// What decides the logits of the next token: every token with the attention size under which it was read, and
// what was dropped after how many tokens.
struct History {
  struct Read {
    TokenId token;
    std::optional<std::int64_t> attention;
  };
  struct Cut {
    Pos after;
    Drop drop;
  };
  std::vector<Read> reads;
  std::vector<Cut> cuts;
  std::optional<std::int64_t> attention;  // of the next token

  Pos position() const { return static_cast<Pos>(reads.size()); }
  void truncate(Pos length) {
    if (length == position()) return;
    reads.resize(static_cast<std::size_t>(length));
    // Before anything was dropped, as if nothing had been; otherwise the text stays cut.
    Pos first_cut = length + 1;
    for (const Cut& cut : cuts) first_cut = std::min(first_cut, cut.drop.range.first);
    if (length <= first_cut) cuts.clear();
    std::erase_if(cuts, [&](const Cut& cut) { return cut.drop.range.first >= length; });
    for (Cut& cut : cuts) {
      cut.after = std::min(cut.after, length);
      cut.drop.range.last = std::min(cut.drop.range.last, length);
    }
  }
  // In runs of equal attention size, cut where something was dropped.
  void replay(Session& session) const {
    ReadOptions silent;
    silent.need_logits = false;
    std::size_t at = 0, next_cut = 0;
    while (true) {
      for (; next_cut < cuts.size() && cuts[next_cut].after == static_cast<Pos>(at); ++next_cut) {
        const Drop& drop = cuts[next_cut].drop;
        // A gap is closed by text behind it, which was taken back later.
        const bool at_end = drop.close_gap && drop.range.last == session.position();
        if (at_end) session.read(std::vector<TokenId>{0}, silent);
        session.apply(drop);
        if (at_end) session.apply(Truncate{session.position() - 1});
      }
      if (at == reads.size()) break;
      std::vector<TokenId> run;
      const auto size = reads[at].attention;
      const std::size_t stop =
          next_cut < cuts.size() ? static_cast<std::size_t>(cuts[next_cut].after) : reads.size();
      for (; at < stop && reads[at].attention == size; ++at) run.push_back(reads[at].token);
      session.apply(SetAttention{size});
      session.read(run, silent);
    }
    session.apply(SetAttention{attention});
  }
};

struct Step {
  enum class Kind { read, truncate, drop, attention, resize, fork, end, save_and_load, cancel };
  Kind kind;
  std::uint64_t seed;
};

class SessionSequence {
 public:
  SessionSequence(const Model& model, std::uint64_t seed) : model_(model), seed_(seed) {
    Rng rng(seed * 31 + 7);
    const std::vector<ElementType> types{ElementType::f16, ElementType::f32, ElementType::q8_0,
                                         ElementType::q4_0};
    options_.key_type = types[static_cast<std::size_t>(rng.below(4))];
    options_.value_type = types[static_cast<std::size_t>(rng.below(4))];
    options_.exact = rng.below(2) == 0;
    options_.context = 150;
    options_.threads = 1 + static_cast<int>(rng.below(2));
    options_.prefill_chunk = std::vector<std::int64_t>{1, 5, 16, 64}[static_cast<std::size_t>(rng.below(4))];
    options_.slack = rng.below(3) * 10;
    if (rng.below(3) == 0) options_.rolling = Rolling{rng.below(6), 10 + rng.below(60)};
    if (rng.below(3) == 0) options_.attention_size = 5 + rng.below(60);
    for (std::int64_t i = 6 + rng.below(12); i > 0; --i) {
      const std::vector<Step::Kind> kinds{
          Step::Kind::read,     Step::Kind::read, Step::Kind::read,      Step::Kind::read,
          Step::Kind::truncate, Step::Kind::drop, Step::Kind::attention, Step::Kind::resize,
          Step::Kind::fork,     Step::Kind::end,  Step::Kind::cancel,    Step::Kind::save_and_load,
          Step::Kind::truncate};
      steps.push_back({kinds[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(kinds.size())))],
                       std::uint64_t{rng.bits()}});
    }
  }

  std::vector<Step> steps;

  // "" when all sessions are what they should be at the end; otherwise the story.
  std::string run(const std::vector<Step>& these) {
    story_ = cat("seed ", seed_, ", keys ", static_cast<int>(options_.key_type), ", values ",
                 static_cast<int>(options_.value_type), options_.exact ? ", exact" : "", ", chunk ",
                 options_.prefill_chunk, ", slack ", options_.slack, "\n");
    if (options_.rolling)
      story_ += cat("rolling ", options_.rolling->sinks, " + ", options_.rolling->window, "\n");
    live_.clear();
    live_.push_back({std::make_unique<Session>(model_, options_), {}});
    live_[0].history.attention = options_.attention_size;
    try {
      for (const Step& step : these) make(step);
      for (std::size_t i = 0; i < live_.size(); ++i) {
        const std::string wrong = compare(live_[i]);
        if (!wrong.empty()) return cat(story_, "=> session ", i, ": ", wrong);
      }
    } catch (const Error& error) {
      return cat(story_, "=> an unexpected error: ", error.message());
    }
    return "";
  }

 private:
  struct Live {
    std::unique_ptr<Session> session;
    History history;
  };

  void make(const Step& step) {
    Rng rng(step.seed);
    const auto who = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(live_.size())));
    Session& session = *live_[who].session;
    History& history = live_[who].history;
    story_ += cat("  session ", who, ": ");
    const auto transition = [&](const Transition& t, const std::string& shown) {
      const TransitionPlan plan = session.plan(t);
      story_ += cat(shown, plan ? "" : " (refused)");
      if (!plan) return false;
      session.apply(t);
      return true;
    };
    switch (step.kind) {
      case Step::Kind::read:
      case Step::Kind::cancel: {
        const auto tokens = testing::random_tokens(static_cast<std::size_t>(1 + rng.below(40)),
                                                   model_.vocabulary(), step.seed);
        story_ += cat(step.kind == Step::Kind::read ? "read " : "begin to read ", tokens.size());
        if (static_cast<std::int64_t>(tokens.size()) > session.room()) break;
        const Pos before = session.position();
        ReadOptions read;
        read.need_logits = rng.below(2) == 0;
        if (step.kind == Step::Kind::cancel) read.progress = [](std::int64_t) { return false; };
        try {
          session.read(tokens, read);
        } catch (const Error& error) {
          if (error.code() != ErrorCode::cancelled) throw;
        }
        for (Pos i = 0; i < session.position() - before; ++i)
          history.reads.push_back({tokens[static_cast<std::size_t>(i)], history.attention});
        break;
      }
      case Step::Kind::truncate: {
        const Pos length = rng.below(2) == 0 ? rng.below(session.position() + 1)
                                             : std::max<Pos>(0, session.position() - rng.below(12));
        if (transition(Truncate{length}, cat("truncate ", length))) history.truncate(length);
        break;
      }
      case Step::Kind::drop: {
        const Pos first = rng.below(session.position() + 1);
        const Drop drop{{first, first + 1 + rng.below(20)}, rng.below(2) == 0};
        if (transition(drop,
                       cat("drop ", first, " to ", drop.range.last, drop.close_gap ? " and close" : "")))
          history.cuts.push_back({session.position(), drop});
        break;
      }
      case Step::Kind::attention: {
        std::optional<std::int64_t> size;
        if (rng.below(3) > 0) size = 1 + rng.below(80);
        if (transition(SetAttention{size}, cat("attention ", size.value_or(0)))) history.attention = size;
        break;
      }
      case Step::Kind::resize: {
        const std::int64_t capacity =
            rng.below(2) == 0 ? session.rows() + rng.below(60) : session.context() + 100;
        if (capacity < session.context())
          transition(Compact{capacity}, cat("compact ", capacity));
        else
          transition(Expand{capacity}, cat("expand ", capacity));
        break;
      }
      case Step::Kind::fork:
        story_ += "fork";
        if (live_.size() < 3) {
          Live copy{std::make_unique<Session>(session.fork()), history};
          live_.push_back(std::move(copy));
        }
        break;
      case Step::Kind::end:
        story_ += "end";
        if (live_.size() > 1) live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(who));
        break;
      case Step::Kind::save_and_load: {
        story_ += "save and load";
        const std::string path = folder_.path("session.kv");
        const std::vector<float> logits(session.logits().begin(), session.logits().end());
        session.save(path);
        // Into itself, or into a session that reads in other chunks and held something else.
        if (rng.below(2) == 0) {
          session.load(path);
        } else {
          SessionOptions other = options_;
          other.prefill_chunk = 1 + rng.below(30);
          other.key_type = other.value_type = ElementType::f16;
          other.rolling = std::nullopt;
          other.attention_size = std::nullopt;
          auto loaded = std::make_unique<Session>(model_, other);
          loaded->read(testing::random_tokens(20, model_.vocabulary(), 3));
          loaded->load(path);
          live_[who].session = std::move(loaded);
        }
        const Session& after = *live_[who].session;
        if (!same_bits(after.logits(), logits)) story_ += " (other logits)";
        break;
      }
    }
    story_ += "\n";
  }

  std::string compare(const Live& live) {
    const Pos position = live.history.position();
    if (live.session->position() != position)
      return cat("is at ", live.session->position(), " of ", position);
    if (static_cast<Pos>(live.session->tokens().size()) != position) return "does not know its tokens";
    for (std::size_t i = 0; i < live.history.reads.size(); ++i)
      if (live.session->tokens()[i] != live.history.reads[i].token)
        return cat("token ", i, " is another one");
    SessionOptions options = options_;
    options.context = 4096;
    options.prefill_chunk = live.session->options().prefill_chunk == 64 ? 1 : 64;
    options.threads = 1;
    Session reference(model_, options);
    live.history.replay(reference);
    const auto tokens = testing::random_tokens(12, model_.vocabulary(), 99);
    live.session->apply(Expand{4096});
    const auto wanted = testing::all_logits(reference, tokens);
    const auto got = testing::all_logits(*live.session, tokens);
    const auto verdict = same_bits(got, wanted);
    return verdict ? "" : cat("other logits than a session that read the same: ", verdict.message());
  }

  const Model& model_;
  std::uint64_t seed_;
  SessionOptions options_;
  std::vector<Live> live_;
  std::string story_;
  testing::TemporaryFolder folder_;
};

void expect_same_logits(const testing::SampleModel& sample, std::uint64_t first, std::uint64_t count) {
  const auto file = testing::sample_file(sample);
  const Model model(file.path());
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SessionSequence sequence(model, seed);
    if (sequence.run(sequence.steps).empty()) continue;
    const auto fewer = testing::shrink<Step>(
        sequence.steps, [&](const auto& steps) { return !sequence.run(steps).empty(); }, 300);
    ADD_FAILURE() << sequence.run(fewer);
    return;
  }
}

TEST(SessionProperty, LogitsAreThoseOfASessionThatReadTheSame_WithFullLayers) {
  testing::SampleModel sample{
      .layers = 2, .width = 32, .hidden = 32, .heads = 2, .kv_heads = 1, .head_dim = 32};
  sample.types = {DType::q8_0};
  expect_same_logits(sample, 0, 150);
}

TEST(SessionProperty, LogitsAreThoseOfASessionThatReadTheSame_WithSlidingWindows) {
  testing::SampleModel sample{.architecture = "gemma3",
                              .layers = 6,
                              .width = 32,
                              .hidden = 32,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_dim = 32};
  sample.window = 20;
  sample.types = {DType::q8_0, DType::q4_1};
  expect_same_logits(sample, 1000, 150);
}

}  // namespace
}  // namespace kvtide
