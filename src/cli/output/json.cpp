#include "cli/output/json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {

struct Json::Tree {
  nlohmann::ordered_json value;
};

Json::Json(std::unique_ptr<Tree> tree) : tree_(std::move(tree)) {}
Json::Json() : Json(std::make_unique<Tree>()) {}
Json::Json(double value) : Json(std::make_unique<Tree>(Tree{value})) {}
Json::Json(std::string_view value) : Json(std::make_unique<Tree>(Tree{std::string(value)})) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json Json::from_bool(bool value) { return Json(std::make_unique<Tree>(Tree{value})); }
Json Json::from_signed(std::int64_t value) { return Json(std::make_unique<Tree>(Tree{value})); }
Json Json::from_unsigned(std::uint64_t value) { return Json(std::make_unique<Tree>(Tree{value})); }
Json Json::object() { return Json(std::make_unique<Tree>(Tree{nlohmann::ordered_json::object()})); }
Json Json::array() { return Json(std::make_unique<Tree>(Tree{nlohmann::ordered_json::array()})); }

Json& Json::set(std::string_view key, Json value) {
  // Straight to the end of the list: looking for the key first would take quadratic time for a file with
  // 65,536 of them.
  using Members = nlohmann::ordered_json::object_t;
  tree_->value.get_ref<Members&>().Members::Container::emplace_back(key, std::move(value.tree_->value));
  return *this;
}

Json& Json::push(Json value) {
  tree_->value.push_back(std::move(value.tree_->value));
  return *this;
}

std::string Json::text(bool pretty) const {
  return tree_->value.dump(pretty ? 2 : -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

FlatJson parse_flat_json(std::string_view text, const std::string& name) {
  const auto tree = nlohmann::json::parse(text, nullptr, false);
  if (!tree.is_object()) throw Error(ErrorCode::bad_format, cat(name, ": is no JSON object"));
  FlatJson flat;
  for (const auto& [key, value] : tree.items()) {
    if (value.is_number()) flat.numbers[key] = value.get<double>();
    if (value.is_string()) flat.texts[key] = value.get<std::string>();
  }
  return flat;
}

}  // namespace kvtide
