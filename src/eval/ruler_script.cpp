#include "eval/ruler_script.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "eval/planted_text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using Ids = RulerScript::Ids;
using Script = RulerScript;

constexpr std::size_t kLeastWords = 100;    // that names are drawn from
constexpr std::int64_t kNames = 4;          // of tasks with several needles
constexpr std::int64_t kHops = 4;           // of a chain of variables
constexpr std::int64_t kCommonWords = 10;   // that a list repeats
constexpr std::int64_t kCommonTimes = 3;    // how much more often than others
constexpr std::int64_t kFrequentWords = 3;  // that are asked for
constexpr std::int64_t kRules = 3;          // that a text begins with
constexpr std::int64_t kSums = 3;           // that are asked for

class Writer {
 public:
  Writer(const Tokenizer& tokenizer, std::span<const TokenId> prose, std::int64_t length,
         std::mt19937_64& random)
      : tokenizer_(tokenizer), prose_(prose), length_(length), random_(random) {
    for (const TokenId id : plain_words(tokenizer)) words_.push_back(tokenizer.piece(id));
    if (words_.size() < kLeastWords)
      throw Error(ErrorCode::unsupported,
                  cat("the vocabulary has ", words_.size(), " plain words; the tasks need ", kLeastWords));
    if (static_cast<std::int64_t>(prose.size()) < length)
      throw Error(ErrorCode::invalid_argument,
                  cat("the text has ", prose.size(), " tokens; ", length, " are needed to hide things in"));
  }

  Script script(RulerTask task) {
    switch (task) {
      case RulerTask::single_1:
        return needles(repeated(), 1, 1, false);
      case RulerTask::single_2:
        return needles(some_prose(), 1, 1, false);
      case RulerTask::single_3:
        return needles(some_prose(), 1, 1, true);
      case RulerTask::multikey_1:
        return needles(some_prose(), kNames, 1, false);
      case RulerTask::multikey_2:
        return only_needles(false);
      case RulerTask::multikey_3:
        return only_needles(true);
      case RulerTask::multivalue:
        return values();
      case RulerTask::multiquery:
        return needles(some_prose(), kNames, kNames, false);
      case RulerTask::variables:
        return variables();
      case RulerTask::common:
        return common();
      case RulerTask::frequent:
        return frequent();
      case RulerTask::instructions:
        return instructions();
      case RulerTask::arithmetic:
        return arithmetic();
    }
    return {};
  }

 private:
  static void append(Ids& to, std::span<const TokenId> ids) { to.insert(to.end(), ids.begin(), ids.end()); }
  Ids say(const std::string& text) const { return tokenizer_.encode(text, kInside); }
  Ids joined(std::initializer_list<std::string> parts) const {
    Ids all;
    for (const std::string& part : parts) append(all, say(part));
    return all;
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  // A word with its space, another one every time.
  std::string word() {
    std::swap(words_[used_], words_[used_ + below(words_.size() - used_)]);
    return words_[used_++ % words_.size()];
  }
  std::string number() { return cat(" ", 1000000 + below(9000000)); }
  std::string code() {
    std::string text = " ";
    for (const int part : {8, 4, 4, 12}) {
      if (text.size() > 1) text += "-";
      for (int i = 0; i < part; ++i) text += "0123456789abcdef"[below(16)];
    }
    return text;
  }
  std::string letters(std::size_t count, char first) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(first + static_cast<char>(below(26)));
    return text;
  }

  Ids some_prose() {
    const std::size_t spare = prose_.size() - static_cast<std::size_t>(length_);
    const auto piece = prose_.subspan(below(spare + 1), static_cast<std::size_t>(length_));
    return {piece.begin(), piece.end()};
  }
  Ids repeated() const {
    const Ids once = say(" Days come and go. Water runs down the hill. A door opens and closes again.");
    Ids all;
    while (static_cast<std::int64_t>(all.size()) < length_) append(all, once);
    return all;
  }

  static constexpr const char* kOf = " The secret number of";
  Ids needle(const std::string& name, const std::string& value) const {
    return joined({kOf, name, " is", value, "."});
  }
  Script::Question question(const std::string& name, const std::string& value, bool first) const {
    return {
        joined({first ? "\nWhat is the secret number of" : ".", first ? name + "?" : "", kOf, name, " is"}),
        say(value)};
  }

  Script needles(Ids haystack, std::int64_t count, std::int64_t asked, bool codes) {
    Script script;
    script.haystack = std::move(haystack);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string name = word(), value = codes ? code() : number();
      script.needles.push_back(needle(name, value));
      if (i < asked) script.questions.push_back(question(name, value, i == 0));
    }
    return script;
  }

  Script only_needles(bool codes) {
    Script script;
    script.layout = Script::Layout::fills;
    script.must = {0};
    std::int64_t tokens = 0;
    while (tokens < length_ && used_ + 1 < words_.size()) {
      const std::string name = codes ? code() : word(), value = codes ? code() : number();
      script.needles.push_back(needle(name, value));
      tokens += static_cast<std::int64_t>(script.needles.back().size());
      if (script.questions.empty()) script.questions.push_back(question(name, value, true));
    }
    return script;
  }

  // Several answers, said one behind the other.
  static void ask_in_a_row(Script& script, Ids cue, const std::vector<Ids>& answers, const Ids& comma) {
    for (const Ids& answer : answers) {
      script.questions.push_back({cue, answer});
      cue = comma;
    }
  }

  Script values() {
    Script script;
    script.haystack = some_prose();
    const std::string name = word();
    std::vector<Ids> answers;
    for (std::int64_t i = 0; i < kNames; ++i) {
      const std::string value = number();
      script.needles.push_back(needle(name, value));
      answers.push_back(say(value));
    }
    ask_in_a_row(script, joined({"\nWhich are the four secret numbers of", name, "? They are"}), answers,
                 say(","));
    return script;
  }

  Script variables() {
    Script script;
    script.haystack = repeated();
    const std::string value = cat(" ", 10000 + below(90000));
    std::vector<Ids> answers;
    std::string before = value;
    for (std::int64_t i = 0; i <= kHops; ++i) {
      const std::string name = cat(" ", letters(5, 'A'));
      script.needles.push_back(joined({" VAR", name, " =", i == 0 ? "" : " VAR", before, "."}));
      answers.push_back(say(name));
      before = name;
    }
    ask_in_a_row(script,
                 joined({"\nWhich variables hold", value, "? The variables that hold", value, " are"}),
                 answers, say(","));
    return script;
  }

  // A numbered list of words, of which ten come up more often: about `room` tokens.
  Script common() {
    Script script;
    script.layout = Script::Layout::fills;
    const auto room = static_cast<std::size_t>(length_ / 5);  // a number, a full stop, a word, a space: items
    const std::size_t often = std::max<std::size_t>(2, std::min<std::size_t>(30, room / 20));
    const std::size_t seldom = std::max<std::size_t>(1, often / kCommonTimes / 3);
    std::vector<std::string> list, asked;
    for (std::int64_t i = 0; i < kCommonWords; ++i) {
      asked.push_back(word());
      list.insert(list.end(), often, asked.back());
    }
    while (list.size() < room && used_ + 1 < words_.size()) list.insert(list.end(), seldom, word());
    for (std::size_t i = 0; i + 1 < list.size(); ++i) std::swap(list[i], list[i + below(list.size() - i)]);
    for (std::size_t i = 0; i < list.size(); ++i) {
      script.needles.push_back(joined({cat(" ", i + 1, "."), list[i]}));
      script.must.push_back(i);
    }
    std::vector<Ids> answers;
    for (const std::string& name : asked) answers.push_back(say(name));
    ask_in_a_row(script, say("\nWhich ten words come up most often in the list? They are"), answers,
                 say(","));
    return script;
  }

  // Made-up words, the k-th of them in proportion to 1 / k^2.
  Script frequent() {
    Script script;
    script.layout = Script::Layout::fills;
    std::vector<std::string> coined;
    std::vector<double> share;
    double sum = 0.0;
    for (int k = 1; k <= 60; ++k) {
      coined.push_back(" " + letters(6, 'a'));
      share.push_back(sum += 1.0 / (k * k));
    }
    std::int64_t tokens = 0;
    while (tokens < length_) {
      const double at = sum * static_cast<double>(random_() >> 11) * 0x1p-53;
      const auto k =
          static_cast<std::size_t>(std::upper_bound(share.begin(), share.end(), at) - share.begin());
      script.needles.push_back(say(coined[std::min(k, coined.size() - 1)]));
      tokens += static_cast<std::int64_t>(script.needles.back().size());
    }
    std::vector<Ids> answers;
    for (std::int64_t i = 0; i < kFrequentWords; ++i)
      answers.push_back(say(coined[static_cast<std::size_t>(i)]));
    ask_in_a_row(script, say("\nWhich three words are the most frequent above? They are"), answers, say(","));
    return script;
  }

  // Where a system message stands. Rules that are kept only in part show: each has an answer of its own.
  Script instructions() {
    Script script;
    script.haystack = some_prose();
    script.layout = Script::Layout::in_front;
    for (std::int64_t i = 1; i <= kRules; ++i) {
      const std::string read = word(), answer = word();
      script.needles.push_back(
          joined({cat(i == 1 ? "" : " ", "Rule ", i, ": to"), read, ", answer", answer, "."}));
      script.questions.push_back(
          {joined({i == 1 ? "\nBy the rules: to" : ", to", read, ", answer"}), say(answer)});
    }
    return script;
  }

  // Both numbers are far from the question, and their sum stands nowhere.
  Script arithmetic() {
    Script script;
    script.haystack = some_prose();
    for (std::int64_t i = 0; i < kSums; ++i) {
      const std::string thing = word();
      const std::size_t first = 2 + below(8), second = 2 + below(8);
      script.needles.push_back(joined({" The first box has", cat(" ", first), thing, "s."}));
      script.needles.push_back(joined({" The second box has", cat(" ", second), thing, "s."}));
      script.questions.push_back({joined({i == 0 ? "\nAdd up what both boxes have." : ".",
                                          " Together they have so many", thing, "s:"}),
                                  say(cat(" ", first + second))});
    }
    return script;
  }

  const Tokenizer& tokenizer_;
  std::span<const TokenId> prose_;
  std::int64_t length_;
  std::mt19937_64& random_;
  std::vector<std::string> words_;
  std::size_t used_ = 0;
};

}  // namespace

RulerScript ruler_script(const Tokenizer& tokenizer, std::span<const TokenId> prose, RulerTask task,
                         std::int64_t length, std::mt19937_64& random) {
  return Writer(tokenizer, prose, length, random).script(task);
}

}  // namespace kvtide
