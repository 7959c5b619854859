// JinjaTemplate of kvtide/chat.h.
#include "base/json/json_value.h"
#include "base/out_of_memory.h"
#include "kvtide/chat.h"
#include "text/jinja/from_json.h"
#include "text/jinja/template.h"

namespace kvtide {

JinjaTemplate::JinjaTemplate(std::string_view source)
    : template_(or_out_of_memory([&] { return std::make_shared<const jinja::Template>(source); })) {}

std::string JinjaTemplate::render(std::string_view variables, const std::optional<std::tm>& now) const {
  return or_out_of_memory([&] {
    const JsonValue json = JsonValue::parse(variables, "chat template: the variables");
    return template_->render(*jinja::variables_from_json(json), now).bytes;
  });
}

}  // namespace kvtide
