#include "validate/evidence_twist.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace kvtide {
namespace {

constexpr double kExplained = 0.95;        // of a layer's difference
constexpr double kExplainedLogits = 0.98;  // many layers may come near to it by chance

// What is left of a difference, and all of it; relative to what is right.
struct Balance {
  double left = 0.0, all = 0.0;
  bool known = true;
};

struct Sums {
  double left = 0.0, all = 0.0, size = 0.0;
  void add(std::span<const float> found, std::span<const float> right, std::span<const float> twisted,
           std::span<const float> base) {
    for (std::size_t i = 0; i < right.size(); ++i) {
      const double value = static_cast<double>(found[i]), other = value - static_cast<double>(twisted[i]);
      const double wrong = value - static_cast<double>(right[i]);
      const double own = static_cast<double>(right[i]) - (base.empty() ? 0.0 : static_cast<double>(base[i]));
      left += other * other;
      all += wrong * wrong;
      size += own * own;
    }
  }
  void into(Balance& balance) const {
    if (size <= 0.0) return;
    balance.left += left / size;
    balance.all += all / size;
  }
};

void add_stream(Balance& balance, const Golden& golden, const Run& run, int layer,
                const std::vector<float>& twisted) {
  Sums sums;
  const auto width = static_cast<std::size_t>(golden.width);
  for (Pos t = 0; t < run.tokens; ++t)
    sums.add(run.stream(layer + 1, t, golden.width), golden.stream(layer + 1, t),
             std::span(twisted).subspan(static_cast<std::size_t>(t) * width, width), golden.stream(layer, t));
  sums.into(balance);
}

void add_rows(Balance& balance, const Inspection& in, const Golden& golden, const Run& run, int layer,
              const HeldRows& twisted) {
  const HeldRows& held = run.rows[static_cast<std::size_t>(layer)];
  const HeldRows& right = golden.rows[static_cast<std::size_t>(layer)];
  const auto window = in.shape.layers[static_cast<std::size_t>(layer)].window;
  const std::vector<float> nothing(static_cast<std::size_t>(right.head_dim));
  for (const bool keys : {true, false}) {
    Sums sums;
    const auto row = [&](const HeldRows& rows, std::int64_t head, Pos t) -> std::span<const float> {
      if (t < rows.first || t >= rows.first + rows.rows) return nothing;
      return keys ? rows.key(head, t) : rows.value(head, t);
    };
    for (std::int64_t head = 0; head < right.kv_heads; ++head)
      for (Pos t = window ? std::max<Pos>(0, run.tokens - *window) : 0; t < run.tokens; ++t)
        sums.add(row(held, head, t), row(right, head, t), row(twisted, head, t), {});
    sums.into(balance);
  }
}

std::vector<Fit> best_of(const Inspection& in, const std::vector<Mistake>& mistakes,
                         const std::vector<Balance>& balances, double explained = kExplained) {
  std::vector<Fit> all;
  for (std::size_t i = 0; i < mistakes.size(); ++i)
    if (const Balance& b = balances[i]; b.known && b.all > 0.0 && 1.0 - b.left / b.all > explained)
      all.push_back({mistakes[i], 1.0 - b.left / b.all, b.left});
  for (Fit& fit : all)
    if (fit.mistake.needs_rows && !in.judges_rows())
      fit.mistake.cause = "past_unseen", fit.mistake.advice = kPastIsGone;
  std::stable_sort(all.begin(), all.end(),
                   [](const Fit& a, const Fit& b) { return a.left < 0.999 * b.left; });
  std::vector<Fit> out;
  for (Fit& fit : all) {
    const bool named = std::any_of(out.begin(), out.end(),
                                   [&](const Fit& one) { return one.mistake.cause == fit.mistake.cause; });
    if (!named && (out.empty() || fit.left <= 4.0 * out.front().left + 1e-12)) out.push_back(std::move(fit));
  }
  return out;
}

constexpr std::int64_t kBeginning = 4;  // tokens by which most mistakes are ruled out

// Computes the first tokens of a course with each of several twists; false: the reference cannot.
using Give = std::function<void(std::size_t, std::vector<float>)>;
using Logits = std::function<bool(const Golden&, std::int64_t, std::span<const Twist* const>, const Give&)>;

// Which mistakes explain logits. Every one costs a pass through the whole model, and what it leaves over can only
// grow with every token and schedule that is looked at. So a mistake is given up as soon as that is too much.
class LogitsFits {
 public:
  LogitsFits(Inspection& in, std::function<std::vector<Mistake>(const Schedule&)> mistakes_of, Logits twisted)
      : in_(in),
        mistakes_of_(std::move(mistakes_of)),
        twisted_(std::move(twisted)),
        vocab_(static_cast<std::size_t>(in.golden.vocab)),
        asked_(mistakes_of_(in.schedules.front())),
        sums_(in.schedules.size()),
        balances_(asked_.size()) {
    for (std::size_t s = 0; s < sums_.size(); ++s) {
      const Golden& golden = *in_.courses[s].golden;
      sums_[s] = sums(s, golden.logits, golden.size());
      sums_[s].into(right_);
    }
  }

  std::vector<Fit> best() {
    if (right_.all <= 0.0) return {};
    if (!judge_beginnings()) return {};
    // Where most is wrong, most is ruled out.
    std::vector<std::size_t> order(sums_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return sums_[a].all * sums_[b].size > sums_[b].all * sums_[a].size;
    });
    for (const std::size_t s : order) judge(s);
    return best_of(in_, asked_, balances_, kExplainedLogits);
  }

 private:
  // The logits that a schedule knows of the first tokens, against those given.
  Sums sums(std::size_t s, std::span<const float> logits, std::int64_t tokens) const {
    const Run& run = in_.chained[s];
    Sums out;
    for (std::size_t i = 0; i < run.known.size(); ++i) {
      if (run.known[i] >= tokens) continue;
      const std::size_t at = static_cast<std::size_t>(run.known[i]) * vocab_;
      out.add(std::span(run.logits).subspan(i * vocab_, vocab_),
              std::span(in_.courses[s].golden->logits).subspan(at, vocab_), logits.subspan(at, vocab_), {});
    }
    return out;
  }

  bool too_much(double left) const { return left > (1.0 - kExplainedLogits) * right_.all; }

  // One short pass speaks for all schedules.
  bool judge_beginnings() {
    const Golden& golden = *in_.courses.front().golden;
    const std::int64_t tokens = std::min<std::int64_t>(kBeginning, golden.size());
    std::vector<std::size_t> mistakes;
    std::vector<const Twist*> twists;
    for (std::size_t m = 0; m < asked_.size(); ++m)
      if (!asked_[m].of_calls) mistakes.push_back(m), twists.push_back(&asked_[m].twist);
    return twisted_(golden, tokens, twists, [&](std::size_t i, std::vector<float> logits) {
      double left = 0.0;
      for (std::size_t s = 0; s < sums_.size(); ++s)
        if (in_.courses[s].golden.get() == &golden && sums_[s].size > 0.0)
          left += sums(s, logits, tokens).left / sums_[s].size;
      balances_[mistakes[i]].known = !too_much(left);
    });
  }

  void judge(std::size_t s) {
    const Golden& golden = *in_.courses[s].golden;
    const std::vector<Mistake> ways = mistakes_of_(in_.schedules[s]);
    std::vector<std::size_t> mistakes;
    std::vector<const Twist*> twists;
    for (std::size_t m = 0; m < ways.size(); ++m) {
      if (!balances_[m].known) continue;
      if (const auto found = known_.find({&golden, m}); found != known_.end()) {
        weigh(s, m, found->second);
      } else {
        mistakes.push_back(m), twists.push_back(&ways[m].twist);
      }
    }
    if (twists.empty()) return;
    const bool told = twisted_(golden, golden.size(), twists, [&](std::size_t i, std::vector<float> logits) {
      const std::size_t m = mistakes[i];
      if (logits.size() != golden.logits.size()) {
        balances_[m].known = false;
        return;
      }
      weigh(s, m, logits);
      if (balances_[m].known && !ways[m].of_calls) known_[{&golden, m}] = std::move(logits);
    });
    for (const std::size_t m : mistakes) balances_[m].known = balances_[m].known && told;
  }

  void weigh(std::size_t s, std::size_t m, std::span<const float> logits) {
    sums(s, logits, in_.courses[s].golden->size()).into(balances_[m]);
    balances_[m].known = !too_much(balances_[m].left);
  }

  Inspection& in_;
  std::function<std::vector<Mistake>(const Schedule&)> mistakes_of_;
  Logits twisted_;
  std::size_t vocab_;
  std::vector<Mistake> asked_;
  std::vector<Sums> sums_;  // of every schedule, with nothing explained
  Balance right_;           // the same, all together
  std::vector<Balance> balances_;
  std::map<std::pair<const Golden*, std::size_t>, std::vector<float>> known_;  // do not depend on calls
};

// A mistake that tips a near tie explains all that the other expert gives, whatever tipped it.
bool only_at_ties(const Inspection& in, const WrongLayer& wrong) {
  return !in.golden.ties.empty() &&
         std::all_of(in.differences.begin(), in.differences.end(), [&](const Difference& d) {
           return d.layer != wrong.layer || d.isolated != wrong.isolated ||
                  std::any_of(in.golden.ties.begin(), in.golden.ties.end(), [&](const NearTie& tie) {
                    return tie.layer == d.layer && tie.token == d.token;
                  });
         });
}

// In a chain a layer may get what lower layers spoiled by less than the gate shows. Routers know the inputs of the
// reference only.
bool enters_wrong(const Run& run, const Golden& golden, const WrongLayer& wrong) {
  if (wrong.isolated || golden.experts > 0) return false;
  for (Pos t = 0; t < run.tokens; ++t)
    if (likeness(run.stream(wrong.layer, t, golden.width), golden.stream(wrong.layer, t)).relative() > 2e-6)
      return true;
  return false;
}

}  // namespace

std::vector<Fit> fits_of_layer(Inspection& in, const WrongLayer& wrong) {
  if (in.row_differences.empty() && only_at_ties(in, wrong)) return {};
  const auto mistakes_of = [&](std::size_t s) {
    const auto layer = static_cast<std::size_t>(wrong.layer);
    const std::int64_t dim =
        in.golden.rows.empty() ? in.shape.layers[layer].head_dim : in.golden.rows[layer].head_dim;
    return mistakes_of_layer(in.schedules[s], dim, wrong.layer, in.layers());
  };
  const std::vector<Mistake> asked = mistakes_of(0);
  std::vector<Balance> balances(asked.size());
  std::map<std::pair<const Golden*, std::size_t>, std::optional<TwistedLayer>> known;
  // Schedules that are right count, too: a mistake must explain why they are.
  for (std::size_t s = 0; s < wrong.runs(in).size(); ++s) {
    const Run& run = wrong.runs(in)[s];
    const Golden& golden = in.wanted(s, wrong.isolated);
    const bool own = enters_wrong(run, golden, wrong);
    const float* input =
        own ? run.stream(wrong.layer, 0, golden.width).data() : golden.stream(wrong.layer, 0).data();
    const auto size = static_cast<std::size_t>((own ? run.tokens : golden.size()) * golden.width);
    const std::vector<Mistake> ways = mistakes_of(s);
    for (std::size_t m = 0; m < ways.size(); ++m) {
      // What depends on neither the calls nor the run is computed once.
      std::optional<TwistedLayer> fresh;
      auto& twisted = ways[m].of_calls || own ? fresh : known[{&golden, m}];
      if (!twisted) twisted = in.reference.twisted(wrong.layer, {input, size}, ways[m].twist);
      if (!twisted) return {};
      add_stream(balances[m], golden, run, wrong.layer, twisted->stream);
      if (in.judges_rows() && twisted->rows && !run.rows.empty())
        add_rows(balances[m], in, golden, run, wrong.layer, *twisted->rows);
    }
  }
  return best_of(in, asked, balances);
}

std::vector<Fit> fits_of_embedding(Inspection& in) {
  const std::vector<Mistake> asked = mistakes_of_embedding(in.schedules.front());
  std::vector<Balance> balances(asked.size());
  const auto width = static_cast<std::size_t>(in.golden.width);
  for (std::size_t s = 0; s < in.schedules.size(); ++s) {
    const std::vector<Mistake> ways = mistakes_of_embedding(in.schedules[s]);
    for (std::size_t m = 0; m < ways.size(); ++m) {
      const auto twisted = in.reference.twisted_embedding(in.tokens, ways[m].twist);
      if (!twisted) return {};
      Sums sums;
      for (Pos t = 0; t < in.chained[s].tokens; ++t)
        sums.add(in.chained[s].stream(0, t, in.golden.width), in.golden.stream(0, t),
                 std::span(*twisted).subspan(static_cast<std::size_t>(t) * width, width), {});
      sums.into(balances[m]);
    }
  }
  return best_of(in, asked, balances);
}

std::vector<Fit> fits_of_head(Inspection& in) {
  const Logits twisted = [&](const Golden& golden, std::int64_t tokens, std::span<const Twist* const> twists,
                             const Give& give) {
    const auto last = golden.stream(golden.layers, 0);
    const auto size = static_cast<std::size_t>(tokens * golden.width);
    for (std::size_t i = 0; i < twists.size(); ++i) {
      auto logits = in.reference.twisted_head({last.data(), size}, *twists[i]);
      if (!logits) return false;
      give(i, std::move(*logits));
    }
    return true;
  };
  return LogitsFits(
             in, [](const Schedule&) { return mistakes_of_head(); }, twisted)
      .best();
}

std::vector<Fit> fits_of_model(Inspection& in) {
  if (in.model_fits) return *in.model_fits;
  const std::int64_t dim = in.golden.rows.empty() ? 0 : in.golden.rows.front().head_dim;
  const Logits twisted = [&](const Golden&, std::int64_t tokens, std::span<const Twist* const> twists,
                             const Give& give) {
    const std::span<const TokenId> text(in.tokens);
    return in.reference.twisted_logits(text.first(static_cast<std::size_t>(tokens)), twists, give);
  };
  in.model_fits =
      LogitsFits(
          in, [dim](const Schedule& schedule) { return mistakes_of_model(schedule, dim); }, twisted)
          .best();
  return *in.model_fits;
}

Finding finding_of(const Fit& fit, Finding where, const std::string& begins, const std::string& ends) {
  where.cause = fit.mistake.cause;
  where.what =
      cat(begins, fit.mistake.part.empty() ? "" : fit.mistake.part + ": ", fit.mistake.what,
          ": the reference computed that way explains ", share_text(fit.share), " of the difference", ends);
  where.advice = fit.mistake.advice;
  return where;
}

}  // namespace kvtide
