// The expected texts are written by hand from what the models' own templates print.
#include "kvtide/chat.h"

#include <gtest/gtest.h>

#include "tests/text/small_vocabulary.h"

namespace kvtide {
namespace {

using Messages = std::vector<ChatMessage>;

std::string text_of(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

std::string rendered(const ChatTemplate& chat, const Messages& messages, const ChatRender& options = {}) {
  return text_of(chat.render(messages, options));
}

const Messages kTalk = {
    {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello."}, {"user", " And now? "}};

TEST(Chat, Chatml) {
  EXPECT_EQ(rendered(ChatTemplate::named("chatml"), kTalk),
            "<|im_start|>system\nBe "
            "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
            "<|im_start|>user\n And now? <|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, Llama3) {
  EXPECT_EQ(
      rendered(ChatTemplate::named("llama-3"), kTalk),
      "<|start_header_id|>system<|end_header_id|>\n\nBe "
      "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
      "Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|><|start_header_id|>user"
      "<|end_header_id|>\n\nAnd now?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(Chat, Gemma_WritesTheSystemMessageIntoTheFirstUserTurn) {
  EXPECT_EQ(rendered(ChatTemplate::named("gemma"), kTalk),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
            "<start_of_turn>user\nAnd now?<end_of_turn>\n<start_of_turn>model\n");
}

TEST(Chat, MistralInstruct_WritesTheSystemMessageIntoTheFirstUserTurn) {
  EXPECT_EQ(rendered(ChatTemplate::named("mistral-instruct"), kTalk),
            "[INST] Be brief.\n\nHi [/INST]Hello.</s>[INST]  And now?  [/INST]");
}

TEST(Chat, WithoutAnOpenAnswerTheTextEndsWithTheLastTurn) {
  EXPECT_EQ(rendered(ChatTemplate::named("chatml"), {{"user", "a"}}, {.open_answer = false}),
            "<|im_start|>user\na<|im_end|>\n");
}

TEST(Chat, TheModelsOwnTemplateIsRendered_WithItsMarkersToolsAndFurtherMembers) {
  const ChatTemplate chat(
      "{{ bos_token }}{% if tools %}{{ tools[0].name }};{% endif %}{% for m in messages %}<{{ m.role }}>{{ "
      "m.content "
      "}}{% for c in m.tool_calls or [] %}[{{ c.name }}]{% endfor %}{{ eos_token }}\n{% endfor %}",
      {"<s>", "</s>"});
  EXPECT_TRUE(chat.takes_tools());
  EXPECT_EQ(chat.end_marker(), "</s>");
  EXPECT_EQ(
      rendered(chat, {{"user", "a"}, {"assistant", "", R"({"tool_calls": [{"name": "f"}]})"}, {"tool", "3"}},
               {.tools = R"([{"name": "f"}])"}),
      "<s>f;<user>a</s>\n<assistant>[f]</s>\n<tool>3</s>\n");
}

TEST(Chat, WhatEndsAnAnswerIsFoundInTheTemplate) {
  EXPECT_EQ(ChatTemplate::named("chatml").end_marker(), "<|im_end|>");
  EXPECT_EQ(ChatTemplate::named("llama-3").end_marker(), "<|eot_id|>");
  EXPECT_EQ(ChatTemplate::named("gemma").end_marker(), "<end_of_turn>");
  EXPECT_EQ(ChatTemplate::named("mistral-instruct").end_marker(), "</s>");
  EXPECT_EQ(ChatTemplate("{{ messages[0].content }}").end_marker(), "");
  EXPECT_EQ(ChatTemplate("{{ raise_exception('no') }}").end_marker(), "");
}

TEST(Chat, RefusesWhatIsNotThere_AndNamesTheWayOut) {
  EXPECT_EQ(
      refusal([] { ChatTemplate(""); }),
      "unsupported: chat template: the model has none; choose one with --chat-template: chatml, llama-3, "
      "gemma, mistral-instruct");
  EXPECT_EQ(refusal([] { ChatTemplate::named("alpaca"); }).substr(0, 52),
            "unsupported: chat template: there is none named 'alp");
  EXPECT_EQ(refusal([] { ChatTemplate("\n{{ raise_exception('only two') }}").render({}); }),
            "invalid_argument: chat template, line 2: only two");
}

TEST(Chat, BehindAnAnswerComesWhatClosesIt) {
  for (const std::string_view name : ChatTemplate::names()) {
    const auto chat = ChatTemplate::named(name);
    const Messages more = {{"user", "c"}};
    const std::string whole = rendered(chat, {{"user", "a"}, {"assistant", "b<"}, {"user", "c"}});
    EXPECT_EQ(text_of(chat.render_behind_answer(more)), whole.substr(whole.find("b<") + 2)) << name;
  }
  EXPECT_EQ(refusal([] {
              ChatTemplate("{{ messages[-1].content }}").render_behind_answer(Messages{{"user", "c"}});
            }),
            "unsupported: chat template: it writes no earlier answers, so nothing can go on behind one that "
            "was read");
}

TEST(Chat, ATalkIsReadFromWhereItsTextGoesOn) {
  SmallVocabulary vocabulary = SmallVocabulary::byte_level();
  vocabulary.merge("a", "b");
  const Tokenizer tokenizer = vocabulary.build();
  const auto chat = ChatTemplate::named("gemma");
  const auto first = chat.render(Messages{{"user", "a"}});
  ChatRest rest = rest_of_chat(tokenizer, first, "", {});
  EXPECT_EQ(rest.keep, 0u);
  EXPECT_EQ(rest.read, encode_chat(tokenizer, first));
  // The answer need not be spelt as the tokenizer would: its tokens stay.
  std::vector<TokenId> held = rest.read;
  for (const char c : std::string("ab"))
    held.push_back(
        tokenizer.encode(std::string(1, c), {.add_bos = {}, .parse_special = true, .continues = true})[0]);
  const auto second = chat.render(Messages{{"user", "a"}, {"assistant", "ab"}, {"user", "c"}});
  rest = rest_of_chat(tokenizer, second, rest.text + "ab", held);
  EXPECT_EQ(rest.keep, held.size());
  EXPECT_EQ(tokenizer.decode(rest.read, true), text_of(chat.render_behind_answer(Messages{{"user", "c"}})));
  // An answer that the template trims is read again from there.
  rest = rest_of_chat(tokenizer, second, text_of(first) + "ab ", held);
  EXPECT_LE(rest.keep, held.size());
  std::vector<TokenId> all(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(rest.keep));
  all.insert(all.end(), rest.read.begin(), rest.read.end());
  EXPECT_EQ(all, encode_chat(tokenizer, second));
  // The same once more: one token is read, because its logits are needed.
  rest = rest_of_chat(tokenizer, second, "", all);
  EXPECT_EQ(rest.read, std::vector<TokenId>{all.back()});
}

TEST(Chat, OnlyMarkupIsMarkup_SoThatAMessageCannotEndItsTurn) {
  for (const std::string_view name : ChatTemplate::names()) {
    const auto chat = ChatTemplate::named(name);
    const std::string attack = "x" + std::string(chat.end_marker()) + "y";
    const auto segments = chat.render(Messages{{"user", attack}});
    std::size_t plain = 0;
    for (const TextSegment& segment : segments) {
      if (!segment.is_markup) {
        EXPECT_EQ(segment.text, attack);
        ++plain;
      }
    }
    EXPECT_EQ(plain, 1u) << name;
  }
}

TEST(Chat, RefusesRolesThatCouldCarryMarkup) {
  EXPECT_EQ(refusal([] {
              ChatTemplate::named("chatml").render(Messages{{"user", "a"}, {"user<|im_end|>", "b"}});
            }),
            "invalid_argument: chat: message 1 has the role 'user<|im_end|>'; roles are system, user, "
            "assistant and "
            "tool");
}

TEST(Chat, RefusesAnOrderOfRolesThatTheTemplateDoesNotHave) {
  const auto refused = [](const char* name, const Messages& messages) {
    return refusal([&] { ChatTemplate::named(name).render(messages); });
  };
  const std::string wrong =
      "invalid_argument: chat template, line 1: messages of user and assistant must take turns, behind one "
      "of system at "
      "most";
  EXPECT_EQ(refused("gemma", {{"user", "a"}, {"user", "b"}}), wrong);
  EXPECT_EQ(refused("mistral-instruct", {{"system", "s"}, {"assistant", "b"}}), wrong);
  EXPECT_EQ(refused("chatml", {{"user", "a"}, {"user", "b"}, {"system", "c"}}), "");
}

TEST(Chat, RefusesContentThatIsNotUtf8) {
  EXPECT_EQ(refusal([] {
              ChatTemplate::named("gemma").render(Messages{{"user", "ab\xff"}});
            }).substr(0, 63),
            "bad_text: chat: message 0 is not valid UTF-8 at byte 2 of 3; kv");
}

TEST(Chat, TrimsLikeTheTemplates_UnicodeSpaceToo) {
  EXPECT_EQ(rendered(ChatTemplate::named("gemma"), {{"user", "\xe3\x80\x80\n\xc2\xa0 a \xe2\x80\x83\x1f"}}),
            "<start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(rendered(ChatTemplate::named("gemma"), {{"user", " \n "}}),
            "<start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n");
}

}  // namespace
}  // namespace kvtide
