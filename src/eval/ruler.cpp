#include "eval/ruler.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "base/text.h"
#include "eval/ruler_script.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using Ids = RulerScript::Ids;

constexpr std::int64_t kAnswerSlack = 8;      // tokens that may be left over
constexpr std::size_t kSentenceSearch = 128;  // tokens in which a sentence ends

// Puts what a script says where it stands in the text.
class Placing {
 public:
  Placing(const Tokenizer& tokenizer, std::int64_t length, std::mt19937_64& random)
      : tokenizer_(tokenizer), length_(length), random_(random) {}

  // Everything in its place: needles behind ends of sentences, questions last.
  RulerSample write(const RulerScript& script) {
    std::int64_t asked = 0, planted = 0;
    for (const auto& question : script.questions)
      asked += static_cast<std::int64_t>(question.cue.size() + question.answer.size());
    for (const Ids& needle : script.needles) planted += static_cast<std::int64_t>(needle.size());
    using Layout = RulerScript::Layout;
    const std::int64_t room = length_ - asked - (script.layout == Layout::fills ? 0 : planted);
    if (room < kAnswerSlack)
      throw Error(ErrorCode::invalid_argument,
                  cat("a text of ", length_, " tokens has no room for this task: ",
                      length_ - room + kAnswerSlack, " or more are needed"));
    RulerSample sample;
    if (script.layout == Layout::fills)
      fill(script, room, sample.tokens);
    else if (script.layout == Layout::in_front)
      begin(script, room, sample.tokens);
    else
      hide(script, room, sample.tokens);
    sample.question = static_cast<Pos>(sample.tokens.size());
    for (const auto& question : script.questions) {
      append(sample.tokens, question.cue);
      const auto first = static_cast<Pos>(sample.tokens.size());
      append(sample.tokens, question.answer);
      sample.answers.push_back({first, static_cast<Pos>(sample.tokens.size())});
    }
    return sample;
  }

 private:
  static void append(Ids& to, std::span<const TokenId> ids) { to.insert(to.end(), ids.begin(), ids.end()); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  // Needles that fill the text; those that have to be there anywhere, the others as many as fit.
  void fill(const RulerScript& script, std::int64_t room, Ids& out) {
    std::vector<std::size_t> order;
    std::vector<bool> chosen(script.needles.size(), false);
    std::int64_t left = room;
    const auto choose = [&](std::size_t i) {
      const auto size = static_cast<std::int64_t>(script.needles[i].size());
      if (chosen[i] || size > left) return;
      chosen[i] = true;
      left -= size;
      order.push_back(i);
    };
    for (const std::size_t i : script.must) choose(i);
    for (std::size_t i = 0; i < script.needles.size(); ++i) choose(i);
    // A list stands in its order, and the one needle that is asked for anywhere.
    if (script.must.size() > 1)
      std::sort(order.begin(), order.end());
    else
      std::swap(order.front(), order[below(order.size())]);
    for (const std::size_t i : order) append(out, script.needles[i]);
  }

  void begin(const RulerScript& script, std::int64_t room, Ids& out) {
    for (const Ids& needle : script.needles) append(out, needle);
    append(out, std::span(script.haystack).first(static_cast<std::size_t>(room)));
  }

  void hide(const RulerScript& script, std::int64_t room, Ids& out) {
    const auto hay = std::span(script.haystack).first(static_cast<std::size_t>(room));
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < script.needles.size(); ++i)
      places.push_back(end_of_sentence(hay, below(hay.size())));
    std::sort(places.begin(), places.end());
    std::size_t read = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      append(out, hay.subspan(read, places[i] - read));
      read = places[i];
      append(out, script.needles[i]);
    }
    append(out, hay.subspan(read));
  }
  // Never the very beginning: what is asked for must not begin the text.
  std::size_t end_of_sentence(std::span<const TokenId> hay, std::size_t from) const {
    from = std::max<std::size_t>(1, from);
    for (std::size_t i = from; i < std::min(hay.size(), from + kSentenceSearch); ++i) {
      const std::string piece = tokenizer_.piece(hay[i]);
      if (!piece.empty() && piece.back() == '.') return i + 1;
    }
    return from;
  }

  const Tokenizer& tokenizer_;
  std::int64_t length_;
  std::mt19937_64& random_;
};

}  // namespace

RulerSample ruler_sample(const Tokenizer& tokenizer, std::span<const TokenId> prose, RulerTask task,
                         std::int64_t length, std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 1);
  const RulerScript script = ruler_script(tokenizer, prose, task, length, random);
  return Placing(tokenizer, length, random).write(script);
}

SampleMean mean_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  SampleMean result;
  if (values.empty()) return result;
  for (const double value : values) result.mean += value / n;
  double squares = 0.0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  if (values.size() > 1) result.half_width = 1.96 * std::sqrt(squares / (n - 1.0) / n);
  return result;
}

}  // namespace kvtide
