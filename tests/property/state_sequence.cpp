#include "tests/property/state_sequence.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/text.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "state/snapshot.h"
#include "state/state.h"
#include "tests/base/memory_files.h"
#include "tests/kernels/samples.h"
#include "tests/property/state_model.h"
#include "tests/state/state_rows.h"

namespace kvtide::testing {
namespace {

using Kind = SequenceStep::Kind;

struct Broken {
  std::string what;
};
template <class... Parts>
[[noreturn]] void broken(const Parts&... parts) {
  throw Broken{cat(parts...)};
}
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) broken(parts...);
}

template <class T>
T one_of(Rng& rng, const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(choices.size())))];
}

std::string shown(const std::optional<std::int64_t>& number) { return number ? cat(*number) : "none"; }

// A real state and what it should be.
struct Pair {
  KvState real;
  StateModel model;
};

class Runner {
 public:
  explicit Runner(const KvSpec& spec) { pairs_.push_back({KvState(spec), StateModel(spec)}); }

  void step(const SequenceStep& step) {
    Rng rng(step.seed);
    const auto who = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(pairs_.size())));
    log_.push_back(cat("state ", who, ": "));
    Pair& pair = pairs_[who];
    switch (step.kind) {
      case Kind::append:
      case Kind::dropped_step:
        append(pair, rng, step.kind == Kind::append);
        break;
      case Kind::fork:
        say("fork");
        if (pairs_.size() < 4) {
          ++made_;
          Pair copy{pair.real.fork(), pair.model};
          pairs_.push_back(std::move(copy));
        }
        break;
      case Kind::forget_fork:
        say("end");
        if (pairs_.size() > 1) pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(who));
        break;
      case Kind::reload:
        reload(pair);
        break;
      case Kind::clear:
        say("clear");
        pair.real.clear();
        pair.model.clear();
        break;
      default:
        transition(pair, made_transition(step.kind, pair.model, rng));
    }
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      try {
        compare(pairs_[i]);
      } catch (const Broken& e) {
        broken("state ", i, ": ", e.what);
      }
    }
  }

  std::int64_t made() const { return made_; }

  std::string story() const {
    std::string text;
    for (const std::string& line : log_) text += "  " + line + "\n";
    return text;
  }

 private:
  template <class... Parts>
  void say(const Parts&... parts) {
    log_.back() += cat(parts...);
  }

  Transition made_transition(Kind kind, const StateModel& m, Rng& rng) {
    const auto near = [&](std::int64_t centre) { return centre + rng.below(5) - 2; };
    switch (kind) {
      case Kind::expand:
        return Expand{rng.below(4) == 0 ? near(m.spec.capacity) : m.spec.capacity * 2};
      case Kind::compact:
        return Compact{rng.below(2) == 0 ? near(m.rows()) : rng.below(m.spec.capacity + 2)};
      case Kind::truncate:
        if (rng.below(3) == 0) return Truncate{near(m.position - m.spec.slack)};
        return Truncate{rng.below(2) == 0 ? near(m.position - rng.below(10)) : rng.below(m.position + 1)};
      case Kind::drop: {
        const Pos first = rng.below(8) == 0 ? near(0) : rng.below(m.position + 1);
        const Pos last =
            rng.below(6) == 0 ? near(m.position) : first + 1 + rng.below(rng.below(3) == 0 ? 90 : 9);
        return Drop{{first, last}, rng.below(2) == 0};
      }
      default:
        if (rng.below(4) == 0) return SetAttention{std::nullopt};
        return SetAttention{one_of<std::int64_t>(rng, {-1, 0, 1, 2, 7, 30, 64, 100})};
    }
  }

  void append(Pair& pair, Rng& rng, bool keep) {
    const KvSpec& spec = pair.model.spec;
    const std::int64_t tokens = rng.below(10) == 0
                                    ? spec.max_step + rng.below(2)
                                    : std::min(spec.max_step, 1 + rng.below(1 + rng.below(80)));
    say(keep ? "append " : "drop a step of ", tokens);
    if (tokens > spec.max_step) return expect_error(pair, tokens, ErrorCode::invalid_argument);
    if (!pair.model.has_room(tokens)) return expect_error(pair, tokens, ErrorCode::context_full);
    require(pair.real.room() >= tokens, "it says that it has room for ", pair.real.room());
    KvState::Step step = pair.real.begin(tokens);
    require(step.first() == pair.model.position && step.tokens() == tokens, "the step is another one");
    // What is about to be read: the old rows, and zeros where nothing was written yet.
    check_step(pair.model, step, std::nullopt);
    const std::int64_t text = next_text_;
    next_text_ += tokens;
    const std::int64_t written = keep ? tokens : rng.below(tokens + 1);
    for (std::size_t layer = 0; layer < spec.layers.size(); ++layer)
      for (int head = 0; head < spec.layers[layer].kv_heads; ++head)
        for (std::int64_t t = 0; t < written; ++t) {
          const auto index = static_cast<int>(layer);
          const int dim = spec.layers[layer].head_dim;
          step.write(kernels_, index, head, t, row_numbers(text + t, index, head, true, dim).data(),
                     row_numbers(text + t, index, head, false, dim).data());
        }
    if (!keep) return;
    check_step(pair.model, step, text);
    step.commit();
    pair.model.append(tokens, text);
    ++made_;
  }

  void expect_error(Pair& pair, std::int64_t tokens, ErrorCode code) {
    say(" (to be refused)");
    try {
      pair.real.begin(tokens);
    } catch (const Error& error) {
      require(error.code() == code, "another error than expected: ", error.message());
      return;
    }
    broken("a step of ", tokens, " tokens was accepted");
  }

  // The spans of every layer hold what the model says, in its order. own: text of the step's rows; nullopt:
  // zeros.
  void check_step(const StateModel& model, KvState::Step& step, std::optional<std::int64_t> own) {
    for (std::size_t layer = 0; layer < model.spec.layers.size(); ++layer) {
      const auto index = static_cast<int>(layer);
      const LayerSpec& l = model.spec.layers[layer];
      require(step.window(index) == model.window_now(layer), "layer ", layer, " has a window of ",
              shown(step.window(index)));
      std::vector<SeenRow> wanted = model.visible(layer, model.window_now(layer));
      std::size_t sinks = 0;
      while (sinks < wanted.size() && wanted[sinks].sink) ++sinks;
      for (std::int64_t t = 0; t < step.tokens(); ++t) {
        const Pos position = step.first() + t;
        const SeenRow row{position, own ? *own + t : -1, 0, position < model.sinks(layer)};
        wanted.insert(row.sink ? wanted.begin() + static_cast<std::ptrdiff_t>(sinks++) : wanted.end(), row);
      }
      const auto spans = step.spans(index);
      require(spans.size() == static_cast<std::size_t>(l.kv_heads), "layer ", layer, " has ", spans.size(),
              " heads");
      for (int head = 0; head < l.kv_heads; ++head) {
        try {
          check_spans(model, spans[static_cast<std::size_t>(head)], wanted, index, head,
                      step.first() + step.tokens() - 1);
        } catch (const Broken& e) {
          broken("layer ", layer, " head ", head, ", spans of ", own ? "a written" : "an open", " step of ",
                 step.tokens(), ": ", e.what);
        }
      }
    }
  }

  void check_spans(const StateModel& model, const std::vector<Span>& spans,
                   const std::vector<SeenRow>& wanted, int layer, int head, Pos newest_reader) {
    const auto index = static_cast<std::size_t>(layer);
    const int dim = model.spec.layers[index].head_dim;
    std::size_t next = 0;
    const Span* before = nullptr;
    for (const Span& span : spans) {
      require(span.rows >= 1 && span.first && span.log_mass == nullptr, "a malformed span");
      require(span.key_type == model.spec.key_type && span.value_type == model.spec.value_type,
              "other types");
      const bool joins = before != nullptr && before->sink == span.sink && before->shift == span.shift &&
                         *before->first + before->rows == *span.first;
      require(!joins || *span.first % 64 == 0, "rows are cut at ", *span.first, ", inside a tile");
      before = &span;
      std::optional<Pos> limit;
      if (span.sink) {
        const Pos reader = *model.window_now(index) + model.sinks(index) - 1;
        if (newest_reader > reader) limit = reader;
      }
      require(span.reader_limit == limit, "its reader limit is ", shown(span.reader_limit), " instead of ",
              shown(limit));
      for (std::int64_t i = 0; i < span.rows; ++i, ++next) {
        const Pos position = *span.first + i;
        require(next < wanted.size(), "position ", position, " should not be seen");
        const SeenRow& row = wanted[next];
        require(row.position == position, "position ", position, " is seen instead of ", row.position);
        require(row.shift == span.shift, "position ", position, " is moved by ", span.shift, " instead of ",
                row.shift);
        require(row.sink == span.sink, "position ", position, span.sink ? " is" : " is not", " a sink");
        for (const bool key : {true, false})
          check_row(model.spec, key,
                    key ? span.keys + i * span.key_stride : span.values + i * span.value_stride, row.text,
                    layer, head, dim, position);
      }
    }
    if (next < wanted.size()) broken("position ", wanted[next].position, " should be seen");
  }

  static void check_row(const KvSpec& spec, bool key, const std::byte* bytes, std::int64_t text, int layer,
                        int head, int dim, Pos position) {
    const DType dtype = key ? spec.key_type : spec.value_type;
    const std::string wrong = text < 0 ? all_zero(bytes, dtype_bytes(dtype, dim))
                                       : compare_row(dtype, bytes, row_numbers(text, layer, head, key, dim));
    require(wrong.empty(), key ? "key" : "value", " of position ", position, ": ", wrong);
  }

  void transition(Pair& pair, const Transition& t) {
    describe_transition(t);
    const TransitionPlan plan = pair.real.plan(t);
    const Verdict verdict = pair.model.verdict(t);
    say(plan ? "" : " (refused)");
    require(verdict == Verdict::either || (verdict == Verdict::accepts) == static_cast<bool>(plan),
            plan ? "accepted, and should not be" : "refused, and should not be: " + plan.refusal());
    if (!plan) {
      check_refusal(pair, t, plan.refusal());
      return;
    }
    const std::int64_t rows_before = pair.real.rows(), bytes_before = pair.real.held_bytes();
    const Pos position_before = pair.real.position();
    const std::int64_t capacity_before = pair.real.capacity();
    const TransitionRecord record = pair.real.apply(plan);
    pair.model.apply(t);
    ++made_;
    require(record.name == transition_name(t) && record.position == position_before, "the record names ",
            record.name, " at ", record.position);
    require(record.rows_kept == pair.real.rows() && record.rows_kept + record.rows_dropped == rows_before,
            "the record keeps ", record.rows_kept, " and drops ", record.rows_dropped, " of ", rows_before,
            " rows, of which ", pair.real.rows(), " remain");
    require(
        record.rows_kept == plan.expected().rows_kept && record.rows_dropped == plan.expected().rows_dropped,
        "the plan promised something else than the record tells");
    require(record.capacity_before == capacity_before && record.capacity_after == pair.real.capacity(),
            "the record has the capacities ", record.capacity_before, " and ", record.capacity_after);
    require(record.bytes_before == bytes_before && record.bytes_after == pair.real.held_bytes(),
            "the record has ", record.bytes_before, " and ", record.bytes_after, " bytes");
    require(std::isfinite(record.milliseconds) && record.milliseconds >= 0.0, "the record has no time");
    const TransitionPlan stale = plan;
    try {
      pair.real.apply(stale);
    } catch (const Error&) {
      return;
    }
    broken("a plan could be applied twice");
  }

  void check_refusal(Pair& pair, const Transition& t, const std::string& refusal) {
    if (const auto* compact = std::get_if<Compact>(&t);
        compact != nullptr && compact->capacity >= 1 && compact->capacity < pair.model.rows())
      require(refusal ==
                  cat("cannot compact to ", compact->capacity, " rows: ", pair.model.rows(), " are in use"),
              "the refusal says: ", refusal);
    if (const auto* truncate = std::get_if<Truncate>(&t); truncate != nullptr && truncate->length > 0) {
      // "... the smallest that works is N": N works, and N - 1 does not.
      const auto at = refusal.rfind(" is ");
      if (refusal.find("the smallest that works") == std::string::npos) return;
      const Pos smallest = std::stoll(refusal.substr(at + 4));
      require(smallest > truncate->length, "the refusal says: ", refusal);
      require(static_cast<bool>(pair.real.plan(Truncate{smallest})), "and that is refused, too: ", refusal);
      require(!pair.real.plan(Truncate{smallest - 1}), "but one less works, too: ", refusal);
    }
    try {
      pair.real.apply(t);
    } catch (const Error& error) {
      require(error.code() == ErrorCode::invalid_argument && error.message() == refusal, "apply says ",
              error.message());
      return;
    }
    broken("what plan refuses, apply does");
  }

  void reload(Pair& pair) {
    say("save and load");
    const StateImage before = pair.real.image();
    SnapshotExtras extras;
    extras.identity = {{"model", "made up"}};
    extras.tokens.assign(static_cast<std::size_t>(pair.real.position()), 7);
    save_snapshot(files_, "state.kv", pair.real, extras);
    Snapshot loaded = load_snapshot(files_, "state.kv", extras.identity);
    require(loaded.extras.tokens == extras.tokens && loaded.extras.identity == extras.identity &&
                loaded.extras.logits.empty(),
            "the extras changed");
    const StateImage after = loaded.state.image();
    require(after.position == before.position && after.segments == before.segments &&
                after.attention_size == before.attention_size &&
                after.spec.capacity == before.spec.capacity && after.spec.slack == before.spec.slack &&
                after.spec.rolling == before.spec.rolling && after.spec.rotary == before.spec.rotary,
            "the image changed");
    pair.real = std::move(loaded.state);
    ++made_;
    require(pair.real.shared_bytes() == 0, "a loaded state shares rows");
  }

  void describe_transition(const Transition& t) {
    say(transition_name(t), " ");
    if (const auto* e = std::get_if<Expand>(&t)) say(e->capacity);
    if (const auto* c = std::get_if<Compact>(&t)) say(c->capacity);
    if (const auto* c = std::get_if<Truncate>(&t)) say(c->length);
    if (const auto* d = std::get_if<Drop>(&t))
      say(d->range.first, " to ", d->range.last, d->close_gap ? " and close the gap" : "");
    if (const auto* a = std::get_if<SetAttention>(&t)) say(shown(a->size));
  }

  // Everything that can be told without changing the state.
  void compare(Pair& pair) {
    const StateModel& model = pair.model;
    KvState& real = pair.real;
    require(real.position() == model.position, "position ", real.position(), " instead of ", model.position);
    require(real.capacity() == model.spec.capacity, "capacity ", real.capacity(), " instead of ",
            model.spec.capacity);
    require(real.rows() == model.rows(), real.rows(), " rows instead of ", model.rows());
    require(real.attention_size() == model.attention, "attention size ", shown(real.attention_size()));
    require(real.shared_bytes() <= real.held_bytes(), "shares ", real.shared_bytes(), " of ",
            real.held_bytes());
    require(pairs_.size() > 1 || real.shared_bytes() == 0, "shares ", real.shared_bytes(),
            " bytes with nobody");
    for (std::size_t layer = 0; layer < model.spec.layers.size(); ++layer) {
      try {
        compare_held(model, real, layer);
      } catch (const Broken& e) {
        broken("layer ", layer, ": ", e.what);
      }
    }
  }

  void compare_held(const StateModel& model, KvState& real, std::size_t layer) {
    const auto index = static_cast<int>(layer);
    const LayerSpec& l = model.spec.layers[layer];
    std::int64_t held = 0;
    auto place = model.places.begin();
    const auto visible = model.visible(layer, model.window(layer));
    std::set<Pos> missing;
    for (const SeenRow& row : visible) missing.insert(row.position);
    for (const LayerRows::Run& run : real.layer_rows(index).runs(0, real.position()))
      for (Pos p = run.first; p < run.last; ++p) {
        ++held;
        while (place != model.places.end() && place->position < p) ++place;
        require(place != model.places.end() && place->position == p && place->held, "still holds position ",
                p);
        missing.erase(p);
        for (int head = 0; head < l.kv_heads; ++head)
          for (const bool key : {true, false}) {
            const auto rows =
                real.rows_of_head(index, head, key ? KvPart::keys : KvPart::values, {run.first, run.last});
            check_row(model.spec, key, rows.row(p - run.first).data(), place->text, index, head, l.head_dim,
                      p);
          }
      }
    require(missing.empty(), "lacks position ", missing.empty() ? 0 : *missing.begin());
    if (const auto window = model.window(layer)) {
      // Whole tiles of 64 leave a window, and only when a step begins.
      const std::int64_t most = model.sinks(layer) + *window + model.spec.slack + model.spec.max_step + 64;
      require(held <= most, "holds ", held, " rows; ", most, " are plenty");
    }
  }

  const ElementwiseRow& kernels_ = best_kernels().elementwise;
  std::vector<Pair> pairs_;
  MemoryFiles files_;
  std::int64_t next_text_ = 0;
  std::int64_t made_ = 0;
  std::vector<std::string> log_;
};

}  // namespace

namespace {

KvSpec made_up_spec(Rng& rng, std::optional<Keeping> keeping, DType key_type, DType value_type) {
  KvSpec spec;
  spec.key_type = key_type;
  spec.value_type = value_type;
  const bool blocks = spec.key_type == DType::q8_0 || spec.value_type == DType::q8_0;
  const bool windows = keeping == Keeping::windows_beside || keeping == Keeping::rolling_and_windows;
  const bool rolls = keeping == Keeping::rolling || keeping == Keeping::rolling_and_windows;
  const std::int64_t layers = (windows ? 2 : 1) + rng.below(windows ? 2 : 3);
  for (std::int64_t i = 0; i < layers; ++i) {
    LayerSpec layer{
        1 + static_cast<int>(rng.below(2)), blocks ? 32 : one_of(rng, std::vector<int>{1, 4, 7}), {}};
    // One layer keeps everything, so that rows() is the same for all.
    if (i > 0 && (keeping ? windows : rng.below(3) > 0))
      layer.window = one_of<std::int64_t>(rng, {1, 2, 5, 30, 64, 70, 100});
    spec.layers.push_back(layer);
  }
  spec.capacity = rng.below(3) == 0 ? 1 + rng.below(60) : 100 + rng.below(300);
  spec.max_step = one_of<std::int64_t>(rng, {1, 3, 17, 64, 80});
  spec.slack = one_of<std::int64_t>(rng, {0, 0, 1, 7, 40, 64});
  spec.rotary = rolls || rng.below(8) > 0;
  if (keeping ? rolls : spec.rotary && rng.below(3) == 0)
    spec.rolling =
        Rolling{one_of<std::int64_t>(rng, {0, 1, 4, 5, 70}), one_of<std::int64_t>(rng, {1, 3, 20, 64, 90})};
  return spec;
}

std::vector<SequenceStep> made_up_steps(Rng& rng) {
  // Kinds as often as they are useful.
  const std::vector<Kind> kinds{
      Kind::append,    Kind::append,   Kind::append,       Kind::append,       Kind::append, Kind::append,
      Kind::append,    Kind::append,   Kind::dropped_step, Kind::dropped_step, Kind::expand, Kind::compact,
      Kind::truncate,  Kind::truncate, Kind::truncate,     Kind::drop,         Kind::drop,   Kind::attention,
      Kind::attention, Kind::fork,     Kind::fork,         Kind::forget_fork,  Kind::reload};
  std::vector<SequenceStep> made;
  const std::int64_t steps = 5 + rng.below(35);
  for (std::int64_t i = 0; i < steps; ++i) {
    const Kind kind = rng.below(100) == 0 ? Kind::clear : one_of(rng, kinds);
    made.push_back({kind, (std::uint64_t{rng.bits()} << 16) ^ rng.bits()});
  }
  return made;
}

}  // namespace

Sequence made_up_sequence(std::uint64_t seed) {
  Rng rng(seed * 7919 + 13);
  const std::vector<DType> types{DType::f32, DType::f16, DType::q8_0};
  const DType key_type = one_of(rng, types), value_type = one_of(rng, types);
  Sequence sequence{made_up_spec(rng, std::nullopt, key_type, value_type), {}};
  sequence.steps = made_up_steps(rng);
  return sequence;
}

Sequence made_up_sequence(std::uint64_t seed, Keeping keeping, DType key_type, DType value_type) {
  Rng rng(seed * 104729 + 17);
  Sequence sequence{made_up_spec(rng, keeping, key_type, value_type), {}};
  sequence.steps = made_up_steps(rng);
  for (const Kind kind :
       {Kind::expand, Kind::append, Kind::reload, Kind::append, Kind::append, Kind::truncate, Kind::append})
    sequence.steps.push_back({kind, (std::uint64_t{rng.bits()} << 16) ^ rng.bits()});
  return sequence;
}

std::string describe(const KvSpec& spec) {
  std::string text =
      cat("keys ", dtype_info(spec.key_type).name, ", values ", dtype_info(spec.value_type).name,
          ", capacity ", spec.capacity, ", steps of at most ", spec.max_step, ", slack ", spec.slack);
  if (spec.rolling) text += cat(", rolling ", spec.rolling->sinks, " + ", spec.rolling->window);
  if (!spec.rotary) text += ", not rotary";
  for (const LayerSpec& layer : spec.layers)
    text += cat("; ", layer.kv_heads, " heads of ", layer.head_dim, ", window ", shown(layer.window));
  return text;
}

std::string run_sequence(const Sequence& sequence, std::int64_t* made) {
  Runner runner(sequence.spec);
  std::string wrong;
  try {
    for (const SequenceStep& step : sequence.steps) runner.step(step);
    if (made != nullptr) *made += runner.made();
    return "";
  } catch (const Broken& e) {
    wrong = e.what;
  } catch (const Error& e) {
    wrong = "an unexpected error: " + e.message();
  }
  return describe(sequence.spec) + "\n" + runner.story() + "=> " + wrong;
}

}  // namespace kvtide::testing
