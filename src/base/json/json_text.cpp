#include "base/json/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kvtide/error.h"

namespace kvtide {
namespace {

class Writer {
 public:
  explicit Writer(JsonForm form) : form_(form) {}

  std::string take() { return std::move(out_); }

  void write(const JsonValue& value) {
    if (const auto* items = value.list())
      write_list(*items);
    else if (const auto* members = value.object())
      write_object(*members);
    else
      write_plain(value);
  }

 private:
  static bool is_plain(const JsonValue& value) {
    return value.list() == nullptr && value.object() == nullptr;
  }

  void write_plain(const JsonValue& value) {
    const auto number = value.number();
    if (form_ == JsonForm::file && number && !std::isfinite(*number))
      throw Error(ErrorCode::invalid_argument, "JSON cannot hold a number that is not finite");
    out_ += value.plain_text();
  }

  void write_list(const JsonValue::List& items) {
    const bool on_one_line = form_ == JsonForm::line || items.empty() ||
                             (form_ == JsonForm::file && std::all_of(items.begin(), items.end(), is_plain));
    out_ += '[';
    ++level_;
    for (const JsonValue& item : items) {
      if (&item != &items.front()) out_ += form_ != JsonForm::line && on_one_line ? ", " : ",";
      if (!on_one_line) begin_line();
      write(item);
    }
    --level_;
    if (!on_one_line) begin_line();
    out_ += ']';
  }

  void write_object(const JsonValue::Object& members) {
    const bool on_one_line = form_ == JsonForm::line || members.empty();
    out_ += '{';
    ++level_;
    for (const auto& member : members) {
      if (&member != &members.front()) out_ += ',';
      if (!on_one_line) begin_line();
      out_ += JsonValue::text_of(member.first);
      out_ += on_one_line ? ":" : ": ";
      write(member.second);
    }
    --level_;
    if (!on_one_line) begin_line();
    out_ += '}';
  }

  void begin_line() {
    out_ += '\n';
    out_.append(2 * level_, ' ');
  }

  JsonForm form_;
  std::size_t level_ = 0;
  std::string out_;
};

}  // namespace

std::string json_text(const JsonValue& value, JsonForm form) {
  Writer writer(form);
  writer.write(value);
  return writer.take() + (form == JsonForm::file ? "\n" : "");
}

double short_number(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = 0.0;
  std::from_chars(text, end, number);
  return number;
}

}  // namespace kvtide
