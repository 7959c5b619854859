#include "base/json/json_line.h"

#include <nlohmann/json.hpp>

namespace kvtide {

// Trees of its values are another matter: their destructor needs memory, and ends the program without.
std::string json_scalar(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_scalar(double number) { return nlohmann::json(number).dump(); }

}  // namespace kvtide
