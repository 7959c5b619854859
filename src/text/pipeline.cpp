#include "text/pipeline.h"

#include "base/text.h"
#include "kvtide/error.h"
#include "text/normalize.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

struct Stretch {
  std::size_t first, last;
  bool matches;
};

// Every stretch of `text`, in order: matches and what lies between them. next(at) gives the first match at or
// behind `at`.
template <class Next>
std::vector<Stretch> stretches(std::string_view text, const Next& next) {
  std::vector<Stretch> out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<std::pair<std::size_t, std::size_t>> match = next(at);
    if (!match) break;
    if (match->first == match->second) {
      at = match->second + (match->second < text.size() ? utf8_length(text[match->second]) : 1);
      continue;
    }
    if (match->first > done) out.push_back({done, match->first, false});
    out.push_back({match->first, match->second, true});
    done = at = match->second;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
  return out;
}

// What becomes of matches: the pieces that stay, as first and last byte.
std::vector<Stretch> apply(const std::vector<Stretch>& parts, SplitStep::Behavior behavior, bool invert) {
  std::vector<Stretch> out;
  const auto is_match = [&](const Stretch& part) { return part.matches != invert; };
  if (behavior == SplitStep::Behavior::merged_with_next) {
    bool before = false;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (is_match(*part) && !before && !out.empty())
        out.back().first = part->first;
      else
        out.push_back(*part);
      before = is_match(*part);
    }
    return {out.rbegin(), out.rend()};
  }
  bool before = false;
  for (const Stretch& part : parts) {
    const bool match = is_match(part);
    const bool joins = (behavior == SplitStep::Behavior::contiguous && match == before) ||
                       (behavior == SplitStep::Behavior::merged_with_previous && match && !before);
    if (match && behavior == SplitStep::Behavior::removed) {
    } else if (joins && !out.empty()) {
      out.back().last = part.last;
    } else {
      out.push_back(part);
    }
    before = match;
  }
  return out;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found = 0; (found = text.find(from, at)) != text.npos; at = found + from.size())
    out.append(text.substr(at, found - at)).append(to);
  return out.append(text.substr(at));
}

}  // namespace

struct Pipeline::Walk {
  bool starts, fronted;
  std::vector<TokenId>& out;
  BpeModel::Scratch scratch = {};
};

Pipeline::Pipeline(const PipelineSpec& spec, BpeModel model)
    : normalizers_(spec.normalizers), splits_(spec.splits), model_(std::move(model)) {
  for (const NormalizerStep& step : normalizers_)
    if (step.kind == NormalizerStep::Kind::replace && step.from.empty())
      throw Error(ErrorCode::bad_format, "vocabulary: a normaliser replaces the empty text");
  for (const SplitStep& step : splits_) {
    if ((step.kind == SplitStep::Kind::text || step.kind == SplitStep::Kind::metaspace) &&
        step.pattern.empty())
      throw Error(ErrorCode::bad_format, "vocabulary: a pre-tokeniser splits at the empty text");
    if (step.kind == SplitStep::Kind::pattern)
      patterns_.emplace_back(Pattern(step.pattern));
    else
      patterns_.emplace_back();
  }
}

std::string Pipeline::normalized(std::string_view text, bool fronted) const {
  std::string out(text);
  for (const NormalizerStep& step : normalizers_) {
    switch (step.kind) {
      case NormalizerStep::Kind::nfc:
        out = normalize(out, NormalForm::nfc);
        break;
      case NormalizerStep::Kind::nfd:
        out = normalize(out, NormalForm::nfd);
        break;
      case NormalizerStep::Kind::nfkc:
        out = normalize(out, NormalForm::nfkc);
        break;
      case NormalizerStep::Kind::nfkd:
        out = normalize(out, NormalForm::nfkd);
        break;
      case NormalizerStep::Kind::lowercase:
        out = lowercased(out);
        break;
      case NormalizerStep::Kind::prepend:
        if (!out.empty() && fronted) out.insert(0, step.to);
        break;
      case NormalizerStep::Kind::replace:
        out = replaced(out, step.from, step.to);
        break;
    }
  }
  return out;
}

void Pipeline::encode(std::string_view text, bool starts, bool fronted, std::vector<TokenId>& out) const {
  Walk walk{starts, fronted, out};
  walk.scratch.words.open(text.size());
  if (!text.empty()) split(0, text, walk);
}

// Depth: the number of steps, which the reader of the file limits.
void Pipeline::split(std::size_t index, std::string_view piece, Walk& walk) const {
  if (index == splits_.size()) return model_.encode(piece, walk.scratch, walk.out);
  const SplitStep& step = splits_[index];
  const auto pass_on = [&](std::string_view part) {
    split(index + 1, part, walk);
    walk.starts = false;
  };
  const auto cut = [&](std::string_view text, const std::vector<Stretch>& parts, SplitStep::Behavior behavior,
                       bool invert) {
    for (const Stretch& part : apply(parts, behavior, invert))
      pass_on(text.substr(part.first, part.last - part.first));
  };
  switch (step.kind) {
    case SplitStep::Kind::rule:
      return pre_tokenize(step.rule, piece, pass_on);
    case SplitStep::Kind::pattern: {
      Pattern::Search search = patterns_[index]->search(piece);
      return cut(piece, stretches(piece, [&](std::size_t at) { return search.next(at); }), step.behavior,
                 step.invert);
    }
    case SplitStep::Kind::text:
      return cut(piece,
                 stretches(piece,
                           [&](std::size_t at) -> std::optional<std::pair<std::size_t, std::size_t>> {
                             const std::size_t found = piece.find(step.pattern, at);
                             if (found == piece.npos) return std::nullopt;
                             return std::pair(found, found + step.pattern.size());
                           }),
                 step.behavior, step.invert);
    case SplitStep::Kind::digits:
      return cut(piece,
                 stretches(piece,
                           [&](std::size_t at) -> std::optional<std::pair<std::size_t, std::size_t>> {
                             for (; at < piece.size(); at += utf8_length(piece[at]))
                               if (char_class(utf8_at(piece, at)) & kDigit)
                                 return std::pair(at, at + utf8_length(piece[at]));
                             return std::nullopt;
                           }),
                 step.individual ? SplitStep::Behavior::isolated : SplitStep::Behavior::contiguous, false);
    case SplitStep::Kind::space_front:
      if (!walk.fronted || piece.starts_with(' ')) return pass_on(piece);
      return pass_on(" " + std::string(piece));
    case SplitStep::Kind::metaspace: {
      std::string marked = replaced(piece, " ", step.pattern);
      const bool front =
          step.front == SplitStep::Front::always || (step.front == SplitStep::Front::first && walk.starts);
      if (front && walk.fronted && !marked.starts_with(step.pattern)) marked.insert(0, step.pattern);
      if (!step.splits) return pass_on(marked);
      return cut(marked,
                 stretches(marked,
                           [&](std::size_t at) -> std::optional<std::pair<std::size_t, std::size_t>> {
                             const std::size_t found = marked.find(step.pattern, at);
                             if (found == marked.npos) return std::nullopt;
                             return std::pair(found, found + step.pattern.size());
                           }),
                 SplitStep::Behavior::merged_with_next, false);
    }
  }
}

}  // namespace kvtide
