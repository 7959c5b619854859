#include "serve/routes/answer_grammar.h"

#include "base/text.h"
#include "serve/routes/request_fields.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"

namespace kvtide::serve {

std::optional<grammar::Grammar> read_format(const std::optional<Fields>& format) {
  if (!format) return std::nullopt;
  const std::string type = format->required_text("type");
  if (type == "text") return std::nullopt;
  if (type == "json_object") return grammar::grammar_of_any_object();
  if (type != "json_schema")
    refuse_unsupported(*format, "type",
                       cat(quoted(type), " is not supported; text, json_object and json_schema are"));
  const Fields holder = format->child("json_schema").value_or(*format);
  const JsonValue* schema = holder.find("schema");
  if (schema == nullptr) holder.refuse("schema", "is missing; it must be a JSON schema, an object");
  return grammar::grammar_of_schema(*schema, holder.place("schema"));
}

std::optional<grammar::Grammar> read_llama_grammar(const Fields& fields) {
  const JsonValue* schema = fields.find("json_schema");
  const std::optional<std::string> text = fields.text("grammar");
  if (schema != nullptr && text && !text->empty())
    fields.refuse("json_schema", "is given beside a grammar; give one of the two");
  if (schema != nullptr) return grammar::grammar_of_schema(*schema, fields.place("json_schema"));
  if (text && !text->empty()) return grammar::grammar_of_gbnf(*text, fields.place("grammar"));
  return std::nullopt;
}

}  // namespace kvtide::serve
