#include "text/jinja/value_tests.h"

#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/letter_methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace value_test {
namespace {

// A test without arguments.
template <bool (*holds)(const Value&)>
Value plain(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this test", given, {});
  return Value(holds(self));
}

bool defined(const Value& value) { return !value.is_undefined(); }
bool undefined(const Value& value) { return value.is_undefined(); }
bool none(const Value& value) { return value.is_none(); }
bool boolean(const Value& value) { return value.boolean() != nullptr; }
bool is_true(const Value& value) { return value.boolean() != nullptr && *value.boolean(); }
bool is_false(const Value& value) { return value.boolean() != nullptr && !*value.boolean(); }
bool integer(const Value& value) { return value.integer() != nullptr; }
bool real(const Value& value) { return value.real() != nullptr; }
bool number(const Value& value) { return value.number().has_value(); }
bool string(const Value& value) { return value.marked() != nullptr; }
bool mapping(const Value& value) { return value.mapping() != nullptr; }
bool escaped(const Value& value) { return value.marked() != nullptr && value.marked()->escaped; }
bool callable(const Value& value) {
  return value.is_undefined() || (value.object() != nullptr && value.object()->is_callable());
}
bool iterable(const Value& value) {
  return value.marked() != nullptr || value.mapping() != nullptr || value.sequence() != nullptr ||
         value.is_undefined();
}
// What has a length and items by place or key.
bool sequence(const Value& value) {
  return value.marked() != nullptr || value.mapping() != nullptr || value.is_undefined() ||
         value.is_list_or_tuple() || value.sequence(Sequence::Form::range) != nullptr;
}

template <Op op>
Value compared(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this test", given, {"other"});
  return Value(comparison(run, op, self, args[0]));
}

Value same_as(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "sameas", given, {"other"});
  return Value(self.is_same(args[0]));
}

Value remainder(Run& run, const Value& self, const Value& by) {
  return arithmetic(run, Op::modulo, self, by);
}

template <int rest>
Value parity(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, rest == 0 ? "even" : "odd", given, {});
  return Value(are_equal(run, remainder(run, self, Value(std::int64_t{2})), Value(std::int64_t{rest})));
}

Value divisible_by(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "divisibleby", given, {"num"});
  return Value(are_equal(run, remainder(run, self, args[0]), Value(std::int64_t{0})));
}

template <bool (*holds)(std::string_view)>
Value of_text(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "this test", given, {});
  return Value(holds(printed(run, self).view()));
}

bool names_filter(std::string_view name) { return find_filter(name) != nullptr; }
bool names_test(std::string_view name) { return find_test(name) != nullptr; }

constexpr NamedNative kTests[] = {
    {"!=", compared<Op::ne>},
    {"<", compared<Op::lt>},
    {"<=", compared<Op::le>},
    {"==", compared<Op::eq>},
    {">", compared<Op::gt>},
    {">=", compared<Op::ge>},
    {"boolean", plain<boolean>},
    {"callable", plain<callable>},
    {"defined", plain<defined>},
    {"divisibleby", divisible_by},
    {"eq", compared<Op::eq>},
    {"equalto", compared<Op::eq>},
    {"escaped", plain<escaped>},
    {"even", parity<0>},
    {"false", plain<is_false>},
    {"filter", of_text<names_filter>},
    {"float", plain<real>},
    {"ge", compared<Op::ge>},
    {"greaterthan", compared<Op::gt>},
    {"gt", compared<Op::gt>},
    {"in", compared<Op::in>},
    {"integer", plain<integer>},
    {"iterable", plain<iterable>},
    {"le", compared<Op::le>},
    {"lessthan", compared<Op::lt>},
    {"lower", of_text<is_all_lower>},
    {"lt", compared<Op::lt>},
    {"mapping", plain<mapping>},
    {"ne", compared<Op::ne>},
    {"none", plain<none>},
    {"number", plain<number>},
    {"odd", parity<1>},
    {"sameas", same_as},
    {"sequence", plain<sequence>},
    {"string", plain<string>},
    {"test", of_text<names_test>},
    {"true", plain<is_true>},
    {"undefined", plain<undefined>},
    {"upper", of_text<is_all_upper>},
};

}  // namespace
}  // namespace value_test

Native find_test(std::string_view name) {
  for (const NamedNative& test : value_test::kTests)
    if (test.name == name) return test.function;
  return nullptr;
}

}  // namespace kvtide::jinja
