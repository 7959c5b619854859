// tagged_call.h: one call as Qwen3-Coder writes it, read byte by byte from behind "<function=":
//
//   <function=name>
//   <parameter=key>
//   value
//   </parameter>
//   </function>
//
// Values carry no quotes: the schema of the tool says which are texts. These are handed on as they come, others whole.
// Thread rules: a plain value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/tools/call_scanner.h"

namespace kvtide::serve {

class TaggedCallScanner {
 public:
  using Found = CallScanner::Found;

  // named: name() is complete; takes() is then to be called. Behind `ended` and `broken` the arguments are whole.
  Found push(char c);
  const std::string& name() const { return name_; }
  // schema: of the tool's parameters.
  void takes(std::string_view schema);
  // What has come of the arguments since the last call, as JSON.
  std::string take_arguments();
  // Behind `broken`, of a call with a name: bytes that are none of it.
  const std::string& rest() const { return tag_; }

 private:
  enum class Place { name, between, key, value };
  enum class Kind { text, text_or_null, other };
  struct Parameter {
    std::string name;
    Kind kind;
  };

  Found between(char c);
  Found end(Found how);
  void begin_value();
  void value_byte(char c);
  void add(char c);
  void end_value();

  std::vector<Parameter> parameters_;
  Place place_ = Place::name;
  std::string name_, key_, value_, arguments_;
  std::string tag_;  // what may become a tag
  Kind kind_ = Kind::text;
  bool is_first_ = true;  // byte of a value
  bool any_ = false;      // parameter so far
};

}  // namespace kvtide::serve
