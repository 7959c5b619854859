// call_scanner.h: one call as JSON, {"name": ..., "arguments": {...}}, read byte by byte.
//
// The arguments are handed on as they come, once the name is known. Thread rules: a plain value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvtide::serve {

class CallScanner {
 public:
  enum class Found { nothing, named, ended, broken };

  // The next byte, the first of which is '{'. named: name() is complete and nothing was said of it before.
  Found push(char c);

  const std::string& name() const { return name_; }
  // What has come of the arguments since the last call, valid JSON when all of it is put together. To be asked for behind
  // `named` only.
  std::string take_arguments();

 private:
  enum class Place { before_key, key, colon, before_value, value, after_value };

  Found value_byte(char c);
  Found value_ended();
  bool is_argument_key() const { return key_ == "arguments" || key_ == "parameters" || key_ == "args"; }

  Place place_ = Place::before_key;
  int depth_ = 0;  // of the value
  bool in_text_ = false, escaped_ = false, opened_ = false;
  std::string key_, value_, name_, arguments_;
  bool has_name_ = false, has_arguments_ = false;
  std::size_t given_ = 0;  // bytes of the arguments in value_ that were handed on
};

}  // namespace kvtide::serve
