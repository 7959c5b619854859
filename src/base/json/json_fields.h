// json_fields.h: the members of a JSON object, typed and range-checked: of a config.json, of a manifest, of a
// row of measurements.
//
// A key that is null counts as absent, as it does for the programs that write such files.
// Ownership: refers to the JsonValue, which must outlive it.
// Thread rules: const from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_value.h"
#include "kvtide/error.h"

namespace kvtide {

class JsonFields {
 public:
  // Throws Error(bad_format) unless `json` is an object. `inside`: where it stands in the file, as "rope.".
  JsonFields(const JsonValue& json, std::string file, std::string inside = "");

  const std::string& file() const { return file_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const JsonValue* find(std::string_view key) const;  // nullptr: absent or null
  // Where null is not absence. is_null throws Error(bad_format) when the key is absent.
  bool contains(std::string_view key) const { return json_->find(key) != nullptr; }
  bool is_null(std::string_view key) const;

  // Each throws Error(bad_format) for another type, a value outside [low, high], and for a key that is absent
  // when there is no fallback.
  std::int64_t count(std::string_view key, std::int64_t low, std::int64_t high,
                     std::optional<std::int64_t> fallback = std::nullopt) const;
  double real(std::string_view key, double low, double high,
              std::optional<double> fallback = std::nullopt) const;
  bool flag(std::string_view key, std::optional<bool> fallback = std::nullopt) const;
  std::optional<std::string> text(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;  // a list of strings; empty: absent
  std::string required_text(std::string_view key) const;
  // One of a few words; Error(unsupported) that lists them for another.
  std::string one_of(std::string_view key, std::initializer_list<std::string_view> known) const;
  const JsonValue::List& list(std::string_view key) const;      // which must be there
  std::vector<JsonFields> objects(std::string_view key) const;  // a list of objects, which must be there
  // Numbers in lists, as deep as T says: std::vector<std::vector<double>>. Whole ones lie in [low, high].
  template <class T>
  T numbers(std::string_view key, std::int64_t low = std::numeric_limits<std::int64_t>::min(),
            std::int64_t high = std::numeric_limits<std::int64_t>::max()) const {
    T out;
    take({key, low, high}, require(key), out);
    return out;
  }
  std::optional<JsonFields> child(std::string_view key) const;
  JsonFields required_child(std::string_view key) const;

  // "FILE: why".
  [[noreturn]] void refuse(ErrorCode code, const std::string& why) const;
  // Error(bad_format): the value of a key that is there is not what is wanted.
  [[noreturn]] void wrong(std::string_view key, std::string_view wanted) const {
    wrong(key, require(key), wanted);
  }

 private:
  struct Wanted {
    std::string_view key;
    std::int64_t low, high;
  };

  const JsonValue& require(std::string_view key) const;
  [[noreturn]] void wrong(std::string_view key, const JsonValue& value, std::string_view wanted) const;
  void take(const Wanted& wanted, const JsonValue& value, std::int64_t& out) const;
  void take(const Wanted& wanted, const JsonValue& value, double& out) const;
  template <class T>
  void take(const Wanted& wanted, const JsonValue& value, std::vector<T>& out) const {
    if (value.list() == nullptr) wrong(wanted.key, value, "a list");
    out.resize(value.list()->size());
    for (std::size_t i = 0; i < out.size(); ++i) take(wanted, (*value.list())[i], out[i]);
  }

  const JsonValue* json_;
  std::string file_, inside_;
};

}  // namespace kvtide
