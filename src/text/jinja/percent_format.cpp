#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "text/jinja/format.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace percent {
namespace {

class Formatter {
 public:
  Formatter(Run& run, const MarkedText& pattern, const Value& values)
      : run_(run), pattern_(pattern), values_(values) {}

  MarkedText format() {
    const std::string_view text = pattern_.view();
    std::size_t copied = 0;
    for (at_ = text.find('%'); at_ != text.npos; at_ = text.find('%', at_)) {
      out_.append(pattern_, copied, at_);
      ++at_;
      put_field();
      copied = at_;
    }
    out_.append(pattern_, copied, text.size());
    const Sequence* all = values_.sequence(Sequence::Form::tuple);
    const bool used = all != nullptr
                          ? next_ == all->items.size()
                          : next_ > 0 || values_.mapping() != nullptr || values_.is_list_or_tuple();
    if (!used) run_.refuse("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char take() {
    if (at_ >= pattern_.size()) run_.refuse("incomplete format");
    return pattern_.bytes[at_++];
  }

  Value next_value() {
    if (const Sequence* all = values_.sequence(Sequence::Form::tuple)) {
      if (next_ >= all->items.size()) run_.refuse("not enough arguments for format string");
      return all->items[next_++];
    }
    if (next_++ > 0) run_.refuse("not enough arguments for format string");
    return values_;
  }

  std::int64_t number() {
    if (at_ < pattern_.size() && pattern_.bytes[at_] == '*') {
      ++at_;
      const auto whole = next_value().whole();
      if (!whole) run_.refuse("* wants int");
      return *whole;
    }
    std::int64_t value = 0;
    while (at_ < pattern_.size() && pattern_.bytes[at_] >= '0' && pattern_.bytes[at_] <= '9')
      value = std::min<std::int64_t>(value * 10 + (pattern_.bytes[at_++] - '0'), 1 << 24);
    return value;
  }

  void put_field() {
    std::optional<Value> value;
    if (at_ < pattern_.size() && pattern_.bytes[at_] == '(') {
      const std::size_t close = pattern_.view().find(')', at_);
      if (close == std::string_view::npos) run_.refuse("incomplete format key");
      const std::string name = pattern_.bytes.substr(at_ + 1, close - at_ - 1);
      if (values_.mapping() == nullptr) run_.refuse("format requires a mapping");
      const Value* found = values_.mapping()->find(name);
      if (found == nullptr)
        run_.refuse(cat("the format names ", quoted(name), ", which the mapping does not have"));
      value = *found;
      at_ = close + 1;
    }
    FieldStyle style;
    char c = take();
    for (; std::string_view("#0- +").find(c) != std::string_view::npos; c = take()) {
      if (c == '#') style.alternate = true;
      if (c == '0' && style.align == 0) style.align = '=', style.fill = "0";
      if (c == '-') style.align = '<', style.fill = " ";
      if (c == '+' || (c == ' ' && style.sign != '+')) style.sign = c;
    }
    --at_;
    style.width = number();
    if (at_ < pattern_.size() && pattern_.bytes[at_] == '.') {
      ++at_;
      style.precision = number();
    }
    style.type = take();
    if (style.type == '%') return out_.append("%");
    put_value(value ? *value : next_value(), style);
  }

  void put_value(const Value& value, FieldStyle style) {
    const char type = style.type;
    if (type == 's' || type == 'r' || type == 'a') {
      MarkedText text = type == 's' ? printed(run_, value) : represented(run_, value);
      style.fill = " ";
      if (style.align == '=') style.align = '>';
      if (style.precision >= 0) {
        std::size_t end = 0;
        for (std::int64_t i = 0; i <= style.precision && end < text.size(); ++end)
          if ((text.bytes[end] & 0xc0) != 0x80 && ++i > style.precision) break;
        text = text.part(0, end);
      }
      return out_.append(aligned(run_, text, style, '>'));
    }
    if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos)
      run_.refuse(cat("unsupported format character '", type, "'"));
    Value number = value;
    run_.refuse_undefined(value);
    if (!number.number())
      run_.refuse(cat("%", type, " format: a real number is required, not ", value.type_name()));
    if (type == 'i' || type == 'u' || type == 'd') {
      style.type = 'd';
      if (number.real() != nullptr) {
        if (!(std::fabs(*number.real()) < 9e18)) run_.refuse("cannot convert this float to an integer");
        number = Value(static_cast<std::int64_t>(*number.real()));
      }
    } else if ((type == 'x' || type == 'X' || type == 'o') && number.real() != nullptr) {
      run_.refuse(cat("%", type, " format: an integer is required, not float"));
    }
    out_.append(written_number(run_, number, style));
  }

  Run& run_;
  const MarkedText& pattern_;
  const Value& values_;
  MarkedText out_;
  std::size_t at_ = 0, next_ = 0;
};

}  // namespace
}  // namespace percent

MarkedText percent_format(Run& run, const MarkedText& pattern, const Value& values) {
  MarkedText out = percent::Formatter(run, pattern, values).format();
  run.charge(out.size());
  return out;
}

}  // namespace kvtide::jinja
