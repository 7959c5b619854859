// AnswerForm and FormPlace of kvtide/generate.h.
#include "base/json/json_value.h"
#include "base/out_of_memory.h"
#include "kvtide/error.h"
#include "kvtide/generate.h"
#include "text/grammar/constraint.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"

namespace kvtide {
namespace {

std::shared_ptr<grammar::Constraint> constraint_of(const Tokenizer& tokenizer,
                                                   const grammar::Grammar& grammar) {
  return std::make_shared<grammar::Constraint>(grammar,
                                               std::make_shared<const grammar::TokenTrie>(tokenizer));
}

}  // namespace

AnswerForm AnswerForm::json_schema(const Tokenizer& tokenizer, std::string_view schema) {
  return or_out_of_memory([&] {
    constexpr std::string_view kPlace = "the JSON schema";
    const JsonValue json = JsonValue::parse(schema, kPlace);
    AnswerForm out;
    out.constraint_ = constraint_of(tokenizer, grammar::grammar_of_schema(json, kPlace));
    return out;
  });
}

AnswerForm AnswerForm::gbnf(const Tokenizer& tokenizer, std::string_view text) {
  return or_out_of_memory([&] {
    AnswerForm out;
    out.constraint_ = constraint_of(tokenizer, grammar::grammar_of_gbnf(text, "the grammar"));
    return out;
  });
}

FormPlace::FormPlace(AnswerForm form) : form_(std::move(form)) {
  if (!form_.constraint())
    throw Error(ErrorCode::invalid_argument, "an answer may be anything: it has no form");
  at_ = form_.constraint()->start();
}

bool FormPlace::may_go_on() const { return form_.constraint()->may_go_on(at_); }

void FormPlace::hold(std::span<float> logits, std::span<const TokenId> ends) const {
  or_out_of_memory([&] {
    if (!form_.constraint()->allow(at_, logits, ends))
      throw Error(ErrorCode::unsupported, "no token of this model's vocabulary goes on as the grammar asks");
  });
}

void FormPlace::advance(std::string_view piece) {
  or_out_of_memory([&] {
    const grammar::Constraint::State next = form_.constraint()->behind(at_, piece);
    if (next == grammar::Constraint::kNowhere)
      throw Error(ErrorCode::invalid_argument, "the answer does not go on so: its form forbids this token");
    at_ = next;
  });
}

}  // namespace kvtide
