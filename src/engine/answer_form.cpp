// AnswerForm of kvtide/generate.h.
#include "base/json/json_value.h"
#include "base/out_of_memory.h"
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

}  // namespace kvtide
