#include "eval/recall.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/text.h"
#include "eval/planted_text.h"
#include "kvtide/error.h"

namespace kvtide {

std::vector<PosRange> RecallText::asked() const {
  std::vector<PosRange> all = pairs;
  all.push_back(key);
  return all;
}

RecallText plant_recall(const Tokenizer& tokenizer, std::span<const TokenId> filler, const RecallOptions& o) {
  std::vector<TokenId> words = plain_words(tokenizer);
  const auto wanted = static_cast<std::size_t>(2 * o.pairs);
  if (words.size() < wanted + 1)
    throw Error(ErrorCode::unsupported, cat("the vocabulary has ", words.size(), " plain words; recall of ",
                                            o.pairs, " pairs needs ", wanted + 1));
  std::mt19937_64 random(o.seed);
  for (std::size_t i = 0; i < wanted; ++i) std::swap(words[i], words[i + random() % (words.size() - i)]);
  const std::string digits = cat(10000 + random() % 90000);

  const auto say = [&](const std::string& text) { return tokenizer.encode(text, kInside); };
  const std::vector<TokenId> of = say(" The code of"), is = say(" is"), stop = say(".");
  const auto pair = [&](std::vector<TokenId>& out, std::size_t i) {
    out.insert(out.end(), of.begin(), of.end());
    out.push_back(words[2 * i]);
    out.insert(out.end(), is.begin(), is.end());
    out.push_back(words[2 * i + 1]);
    out.insert(out.end(), stop.begin(), stop.end());
  };
  std::vector<TokenId> planted =
      say(cat(" The pass key is ", digits, ". Remember it: ", digits, " is the pass key."));
  for (std::size_t i = 0; i < wanted / 2; ++i) pair(planted, i);

  const std::vector<TokenId> key = say(digits);
  std::vector<TokenId> questions = say(" What is the pass key? The pass key is ");
  const auto key_at = static_cast<Pos>(questions.size());
  questions.insert(questions.end(), key.begin(), key.end());
  questions.insert(questions.end(), stop.begin(), stop.end());
  std::vector<std::size_t> order(wanted / 2);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = 0; i < order.size(); ++i)
    std::swap(order[i], order[i + random() % (order.size() - i)]);
  std::vector<Pos> values;
  for (const std::size_t i : order) {
    values.push_back(static_cast<Pos>(questions.size() + of.size() + 1 + is.size()));
    pair(questions, i);
  }

  const auto needed = static_cast<std::int64_t>(planted.size() + questions.size());
  const std::int64_t rest = o.length - needed;
  // One token of filler on each side: what is asked for must not begin the text.
  if (rest < 2)
    throw Error(ErrorCode::invalid_argument,
                cat("a text of ", o.length, " tokens has no room for what is planted and asked: ", needed + 2,
                    " or more are needed"));
  if (rest > static_cast<std::int64_t>(filler.size()))
    throw Error(ErrorCode::invalid_argument,
                cat("the filler has ", filler.size(), " tokens; a text of ", o.length, " needs ", rest));
  const auto before =
      static_cast<std::int64_t>(std::clamp(o.depth, 0.0, 1.0) * static_cast<double>(rest - 2)) + 1;

  RecallText text;
  const auto add = [&](std::span<const TokenId> ids) {
    text.tokens.insert(text.tokens.end(), ids.begin(), ids.end());
  };
  add(filler.first(static_cast<std::size_t>(before)));
  text.position = before;
  add(planted);
  add(filler.subspan(static_cast<std::size_t>(before), static_cast<std::size_t>(rest - before)));
  const auto asked = static_cast<Pos>(text.tokens.size());
  add(questions);
  text.key = {asked + key_at, asked + key_at + static_cast<Pos>(key.size())};
  for (const Pos value : values) text.pairs.push_back({asked + value, asked + value + 1});
  return text;
}

double word_chance(const Tokenizer& tokenizer) {
  return std::log(static_cast<double>(std::max<std::size_t>(2, plain_words(tokenizer).size())));
}

}  // namespace kvtide
