// Turns katakana into the usual mixed writing with a zenz model: a GPT-2 that was trained to continue a
// prompt of tagged fields (private use characters) with the conversion. The three versions of the prompt side
// by side.
//
//   06_kana_to_kanji MODEL KATAKANA [v1|v2|v3] [LEFT_CONTEXT]
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/error.h"
#include "kvtide/stateful.h"

namespace {

// The tags, each three bytes of UTF-8.
constexpr const char *kInput = "\uee00", *kOutput = "\uee01", *kContext = "\uee02", *kProfile = "\uee03",
                     *kTopic = "\uee04", *kStyle = "\uee05", *kPreference = "\uee06";
constexpr std::size_t kLongestField = 25, kLongestContext = 40;  // characters

struct Conditions {
  std::string profile, topic, style, preference;
};

// The last `count` characters of a text.
std::string last_characters(std::string_view text, std::size_t count) {
  std::size_t at = text.size();
  while (at > 0 && count > 0) {
    --at;
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) --count;
  }
  return std::string(text.substr(at));
}

// The vocabulary has no space and no line feed: a wide space stands for the first, the second is dropped.
std::string spelled(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ')
      out += "\u3000";
    else if (c != '\n')
      out += c;
  }
  return out;
}

std::string field(const char* tag, const std::string& text) {
  return text.empty() ? "" : tag + last_characters(text, kLongestField);
}

std::string prompt_v1(const std::string& kana) { return kInput + kana + kOutput; }

std::string prompt_v2(const std::string& kana, const Conditions& c, const std::string& left) {
  return kInput + kana + kContext + c.profile + c.topic + c.style + c.preference +
         last_characters(left, kLongestContext) + kOutput;
}

// The context comes first, so that what is typed behind it can be read on while it grows.
std::string prompt_v3(const std::string& kana, const Conditions& c, const std::string& left) {
  const std::string context = left.empty() ? "" : kContext + last_characters(left, kLongestContext);
  return field(kProfile, c.profile) + field(kTopic, c.topic) + field(kStyle, c.style) +
         field(kPreference, c.preference) + context + kInput + kana + kOutput;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5)
    return std::puts("usage: 06_kana_to_kanji MODEL KATAKANA [v1|v2|v3] [LEFT_CONTEXT]"), 2;
  try {
    const kvtide::Model model(argv[1]);
    for (const std::string& note : model.notes()) std::fprintf(stderr, "%s\n", note.c_str());
    const std::string version = argc > 3 ? argv[3] : "v3", left = argc > 4 ? argv[4] : "";
    std::string prompt = version == "v1"   ? prompt_v1(argv[2])
                         : version == "v2" ? prompt_v2(argv[2], {}, left)
                                           : prompt_v3(argv[2], {}, left);
    kvtide::EncodeOptions encode;
    encode.add_bos = model.tokenizer().bos().has_value();
    const std::vector<kvtide::TokenId> ids = model.tokenizer().encode(spelled(prompt), encode);

    // Phase 1: the whole prompt once. Phase 2: one token a call, with the same state and a mask of all that
    // is active.
    kvtide::StatefulModel zenz(model);
    std::vector<std::int32_t> mask(ids.size(), 1);
    auto logits = zenz.predict(ids, mask);
    std::vector<kvtide::TokenId> answer;
    while (zenz.past_length() < std::min<std::int64_t>(zenz.session().context(), 128)) {
      const auto next =
          static_cast<kvtide::TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (model.tokenizer().ends_text(next)) break;
      answer.push_back(next);
      mask.push_back(1);
      logits = zenz.predict({&next, 1}, mask);
    }
    std::printf("%s\n", model.tokenizer().decode(answer).c_str());
    std::fprintf(stderr, "%zu tokens read, %zu written; pastLen is %lld\n", ids.size(), answer.size(),
                 static_cast<long long>(zenz.past_length()));
  } catch (const kvtide::Error& error) {
    std::fprintf(stderr, "06_kana_to_kanji: %s\n", error.message().c_str());
    return 1;
  }
}
