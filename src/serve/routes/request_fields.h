// request_fields.h: what the interfaces have in common: sampling, stop strings, messages.
//
// Pure functions; each throws Error(invalid_argument) or Error(unsupported) that begins with the field's place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/chat.h"
#include "serve/http/fields.h"
#include "serve/work/answer.h"

namespace kvtide::serve {

// temperature, top_p, top_k, min_p, repeat_penalty (or repetition_penalty), frequency_penalty, presence_penalty, seed,
// logit_bias. What is absent stays as it is.
void read_sampling(const Fields& fields, AnswerSpec& spec);

// The key of requests that say id_slot, by which /slots finds what they leave.
std::string slot_key(std::int64_t slot);
// id_slot, then X-Session-Id, then what `otherwise` says.
std::string read_key(const Fields& fields, const std::string* session, std::string otherwise);

// "stop" or "stop_sequences".
void read_stop(const Fields& fields, std::string_view key, AnswerSpec& spec);

// A prompt: a string, a list of token ids, or a list of one of these.
std::vector<TokenId> read_prompt(const Fields& fields, std::string_view key, const Tokenizer& tokenizer);

// Throws Error(unsupported): the field would change the answer, and is not implemented.
[[noreturn]] void refuse_unsupported(const Fields& fields, std::string_view key, std::string_view why);

}  // namespace kvtide::serve
