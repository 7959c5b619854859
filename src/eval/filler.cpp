#include "eval/filler.h"

#include <random>
#include <string>
#include <string_view>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::string_view kWho[] = {"The baker",   "My neighbour", "A young teacher", "The old sailor",
                                     "Her brother", "The gardener", "A tall stranger", "The miller",
                                     "His aunt",    "The doctor"};
constexpr std::string_view kDid[] = {"walked to",  "thought about", "came back from", "talked about",
                                     "dreamed of", "stood near",    "looked after",   "wrote about",
                                     "waited at",  "asked about"};
constexpr std::string_view kWhat[] = {
    "the small harbour",   "the wooden bridge", "the market",      "a green hill",     "the quiet garden",
    "the railway station", "an empty field",    "the long street", "the white church", "the river"};
constexpr std::string_view kWhen[] = {
    "in the morning",    "before the rain began",     "after dinner",
    "on a warm evening", "while the children played", "when the bells rang",
    "in early spring",   "without saying a word",     "as if nothing had happened",
    "for the last time"};

template <std::size_t N>
std::string_view one_of(const std::string_view (&list)[N], std::mt19937_64& random) {
  return list[random() % N];
}

}  // namespace

std::vector<TokenId> filler_prose(const Tokenizer& tokenizer, std::int64_t tokens, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> all;
  while (static_cast<std::int64_t>(all.size()) < tokens) {
    // A paragraph at a time: a few sentences, then a line feed.
    std::string text;
    for (std::uint64_t left = 4 + random() % 4; left > 0; --left) {
      const std::string_view who = one_of(kWho, random), did = one_of(kDid, random),
                             what = one_of(kWhat, random), when = one_of(kWhen, random);
      text += cat(who, " ", did, " ", what, " ", when, left > 1 ? ". " : ".\n");
    }
    const auto ids =
        tokenizer.encode(text, {.add_bos = all.empty(), .parse_special = false, .continues = !all.empty()});
    if (ids.size() < 8)
      throw Error(ErrorCode::unsupported, "the vocabulary cannot spell plain English; give a text with -f");
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

}  // namespace kvtide
