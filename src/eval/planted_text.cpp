#include "eval/planted_text.h"

#include <algorithm>
#include <random>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::size_t kStringWords = 24, kCueWords = 8;
std::string percent(double share) { return cat(static_cast<int>(share * 100.0 + 0.5), "%"); }

}  // namespace

std::vector<TokenId> plain_words(const Tokenizer& tokenizer) {
  std::vector<TokenId> words;
  for (std::size_t id = 0; id < tokenizer.size(); ++id) {
    const std::string piece = tokenizer.piece(static_cast<TokenId>(id));
    if (piece.size() < 5 || piece.size() > 9 || piece[0] != ' ') continue;
    if (std::all_of(piece.begin() + 1, piece.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
      words.push_back(static_cast<TokenId>(id));
  }
  return words;
}

std::vector<PosRange> PlantedText::outside() const {
  std::vector<PosRange> all;
  for (const Plant& plant : plants) all.insert(all.end(), plant.outside.begin(), plant.outside.end());
  return all;
}

PlantedText plant(const Tokenizer& tokenizer, std::span<const TokenId> filler, const PlantOptions& options) {
  std::vector<TokenId> words = plain_words(tokenizer);
  const std::size_t wanted = kStringWords * options.copies.size();
  if (words.size() < wanted + 1)
    throw Error(ErrorCode::unsupported, "the vocabulary has too few plain words to test recall with");
  std::mt19937_64 random(options.seed);
  for (std::size_t i = 0; i < wanted; ++i) std::swap(words[i], words[i + random() % (words.size() - i)]);

  struct Item {
    double share;
    std::vector<TokenId> text, cue, answer;
    std::string name;
  };
  std::vector<Item> items;
  for (std::size_t c = 0; c < options.copies.size(); ++c) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(c * kStringWords);
    const auto cue_end = begin + static_cast<std::ptrdiff_t>(kCueWords),
               end = begin + static_cast<std::ptrdiff_t>(kStringWords);
    items.push_back({options.copies[c],
                     {begin, end},
                     {begin, cue_end},
                     {cue_end, end},
                     "copy " + percent(options.copies[c])});
  }
  for (const double share : options.keys) {
    const std::string key = cat(10000 + random() % 90000);
    items.push_back({share,
                     tokenizer.encode(
                         cat(" The pass key is ", key, ". Remember it: ", key, " is the pass key."), kInside),
                     tokenizer.encode(" What is the pass key? The pass key is ", kInside),
                     tokenizer.encode(key, kInside), "pass key " + percent(share)});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.share < b.share; });

  PlantedText result;
  const auto add = [&](std::span<const TokenId> ids) {
    const auto first = static_cast<Pos>(result.tokens.size());
    result.tokens.insert(result.tokens.end(), ids.begin(), ids.end());
    return PosRange{first, static_cast<Pos>(result.tokens.size())};
  };
  std::size_t read = 0;
  for (const Item& item : items) {
    const auto until = static_cast<std::size_t>(item.share * static_cast<double>(filler.size()));
    add(filler.subspan(read, until - read));
    read = until;
    const PosRange place = add(item.text);
    result.plants.push_back({item.name, place.first, {}, {place}});
    // The token behind a plant could not be foreseen by anybody.
    result.plants.back().outside.back().last += 1;
  }
  add(filler.subspan(read));
  for (std::size_t i = 0; i < items.size(); ++i) {
    Plant& plant = result.plants[i];
    const PosRange cue = add(items[i].cue);
    plant.asked = add(items[i].answer);
    plant.outside.push_back({cue.first, plant.asked.last});
  }
  return result;
}

}  // namespace kvtide
