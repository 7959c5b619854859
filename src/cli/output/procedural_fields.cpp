#include "cli/output/procedural_fields.h"

#include <type_traits>
#include <utility>

namespace kvtide {
namespace {

// A field's value, by its type.
template <class Number>
requires std::is_arithmetic_v<Number> Json value_json(Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    return Json(static_cast<double>(value));
  else
    return Json(value);
}
template <class Choice>
requires std::is_enum_v<Choice> Json value_json(Choice value) { return Json(name_of(value)); }
Json value_json(const std::string& value) { return Json(value); }
Json value_json(const std::vector<PosRange>& ranges) {
  Json list = Json::array();
  for (const PosRange& range : ranges) list.push(Json::array(std::vector{range.first, range.last}));
  return list;
}
Json value_json(const HeadTable& table) {
  Json list = Json::array();
  for (const HeadNeed& need : table.needs)
    list.push(Json::array(
        std::vector<double>{static_cast<double>(need.induction), static_cast<double>(need.share),
                            static_cast<double>(need.output_norm), static_cast<double>(need.worth)}));
  return list;
}

}  // namespace

std::vector<FieldText> field_texts(const ProceduralOptions& options, bool told) {
  std::vector<FieldText> texts;
  visit(options, [&](const ProceduralField& field, const auto& value) {
    if (!told || field.since >= 0) texts.push_back({field.name, value_json(value).text(false)});
  });
  return texts;
}

Json fields_json(const ProceduralOptions& options) {
  Json json = Json::object();
  visit(options, [&](const ProceduralField& field, const auto& value) {
    if (field.since >= 0) json.set(field.name, value_json(value));
  });
  return json;
}

}  // namespace kvtide
