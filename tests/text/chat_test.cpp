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

std::string rendered(const ChatTemplate& chat, const Messages& messages, const RenderOptions& options = {}) {
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

TEST(Chat, Mistral_PutsSpacesWhereTheModelsTemplateDoes) {
  const auto chat = ChatTemplate::recognise(
      "{{ '[INST] ' + message['content'] + '[/INST]' }}{{ ' ' + message['content'] + eos }}");
  EXPECT_EQ(chat.name(), "mistral-instruct");
  const Messages talk = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  EXPECT_EQ(rendered(chat, talk), "[INST] a[/INST] b</s>[INST] c[/INST]");
  const auto tight = ChatTemplate::recognise(
      "{{ '[INST]' + message['content'] + '[/INST]' }}{{ message['content'] + eos }}");
  EXPECT_EQ(rendered(tight, talk), "[INST]a[/INST]b</s>[INST]c[/INST]");
}

TEST(Chat, WithoutAnOpenAnswerTheTextEndsWithTheLastTurn) {
  const Messages talk = {{"user", "a"}};
  EXPECT_EQ(rendered(ChatTemplate::named("chatml"), talk,
                     {.first = 0, .answer_ended = false, .open_answer = false}),
            "<|im_start|>user\na<|im_end|>\n");
}

TEST(Chat, ADefaultSystemMessageIsReadFromTheTemplate_EscapedOrNot) {
  for (const char* newline : {"\n", "\\n"}) {
    const std::string jinja =
        std::string("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system") + newline +
        "You\\'re a \"model\".<|im_end|>" + newline +
        "' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'}}";
    const auto chat = ChatTemplate::recognise(jinja);
    EXPECT_EQ(chat.default_system(), "You're a \"model\".");
    EXPECT_EQ(rendered(chat, {{"user", "a"}}),
              "<|im_start|>system\nYou're a "
              "\"model\".<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(rendered(chat, {{"system", "s"}, {"user", "a"}}),
              "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  }
}

TEST(Chat, ATemplateThatOnlyCopiesTheSystemMessageHasNoDefault) {
  const auto chat =
      ChatTemplate::recognise("{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}");
  EXPECT_EQ(chat.default_system(), "");
}

TEST(Chat, RecognisesTemplatesByTheirMarkers) {
  EXPECT_EQ(ChatTemplate::recognise("x <|im_start|> y <|im_end|>").name(), "chatml");
  EXPECT_EQ(ChatTemplate::recognise("<|start_header_id|> <|end_header_id|> <|eot_id|>").name(), "llama-3");
  EXPECT_EQ(ChatTemplate::recognise("<start_of_turn> <end_of_turn>").name(), "gemma");
  EXPECT_EQ(ChatTemplate::recognise("[INST] [/INST]").name(), "mistral-instruct");
}

TEST(Chat, RefusesTemplatesThatItWouldWriteWrongly_AndNamesTheWayOut) {
  for (const char* jinja : {"<|user|>\n{{ x }}<|end|>", "<|im_start|><|im_sep|><|im_end|>",
                            "[INST] <<SYS>> [/INST]", "[SYSTEM_PROMPT] [INST] [/INST]"}) {
    const std::string message = refusal([&] { ChatTemplate::recognise(jinja); });
    EXPECT_EQ(message.substr(0, 50),
              "unsupported: chat template: the model's own, '" + std::string(jinja).substr(0, 4))
        << jinja;
    EXPECT_NE(message.find("--chat-template: chatml, llama-3, gemma, mistral-instruct"), std::string::npos)
        << message;
  }
  EXPECT_EQ(refusal([] { ChatTemplate::recognise(""); }),
            "unsupported: chat template: the model has none; choose one with --chat-template: chatml, "
            "llama-3, gemma, "
            "mistral-instruct");
  EXPECT_EQ(refusal([] { ChatTemplate::named("ChatML"); }),
            "unsupported: chat template: there is none named 'ChatML'; --chat-template takes chatml, "
            "llama-3, gemma, "
            "mistral-instruct");
}

TEST(Chat, GoingOnWritesTheSameTextAsWritingEverything) {
  const Messages talk = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}, {"user", "e"}};
  for (const std::string_view name : ChatTemplate::names()) {
    const auto chat = ChatTemplate::named(name);
    for (const bool ended : {false, true}) {
      std::string text;
      std::size_t first = 0;
      for (std::size_t end = 1; end <= talk.size(); end += 2) {
        const std::span<const ChatMessage> so_far(talk.data(), end);
        text += text_of(chat.render(so_far, {.first = first, .answer_ended = ended}));
        if (end == talk.size()) break;
        text += talk[end].content;  // what the model answered, with its end marker or without
        if (ended) text += chat.end_marker();
        first = end + 1;
      }
      EXPECT_EQ(text, rendered(chat, talk)) << name;
    }
  }
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
            "invalid_argument: chat: message 1 has the role 'user<|im_end|>'; roles are system, user and "
            "assistant");
}

TEST(Chat, RefusesAnOrderOfRolesThatTheTemplateDoesNotHave) {
  const auto refused = [](const char* name, const Messages& messages) {
    return refusal([&] { ChatTemplate::named(name).render(messages); });
  };
  EXPECT_EQ(refused("gemma", {{"user", "a"}, {"user", "b"}}),
            "invalid_argument: chat: message 1 has the role 'user'; the gemma template needs assistant here");
  EXPECT_EQ(refused("mistral-instruct", {{"system", "s"}, {"assistant", "b"}}),
            "invalid_argument: chat: message 1 has the role 'assistant'; the mistral-instruct template needs "
            "user here");
  EXPECT_EQ(refused("chatml", {{"user", "a"}, {"user", "b"}, {"system", "c"}}), "");
}

TEST(Chat, RefusesContentThatIsNotUtf8_AndASystemMessageRenderedApart) {
  EXPECT_EQ(refusal([] {
              ChatTemplate::named("gemma").render(Messages{{"user", "ab\xff"}});
            }).substr(0, 63),
            "bad_text: chat: message 0 is not valid UTF-8 at byte 2 of 3; kv");
  EXPECT_EQ(refusal([] {
              ChatTemplate::named("gemma").render(Messages{{"system", "s"}, {"user", "a"}}, {.first = 1});
            }),
            "invalid_argument: chat: the gemma template writes the system message together with the first "
            "user message; they "
            "cannot be rendered apart");
  EXPECT_EQ(refusal([] {
              ChatTemplate::named("chatml").render(Messages{{"user", "a"}}, {.first = 2});
            }),
            "invalid_argument: chat: asked to go on at message 2 of 1");
}

TEST(Chat, TrimsLikeTheTemplates_UnicodeSpaceToo) {
  EXPECT_EQ(rendered(ChatTemplate::named("gemma"), {{"user", "\xe3\x80\x80\n\xc2\xa0 a \xe2\x80\x83\x1f"}}),
            "<start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(rendered(ChatTemplate::named("gemma"), {{"user", " \n "}}),
            "<start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n");
}

}  // namespace
}  // namespace kvtide
