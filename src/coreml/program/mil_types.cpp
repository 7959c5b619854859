#include "coreml/program/mil_types.h"

#include <limits>
#include <utility>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/program/wire_values.h"

namespace kvtide::coreml {
namespace {

using Kind = ValueType::Kind;

constexpr int kMostDepth = 32;

DataType read_data_type(MilLexer& lexer) {
  const auto found = data_type_named(lexer.now().spelling);
  if (lexer.now().kind != MilToken::Kind::name || !found)
    lexer.fail(cat(quoted(lexer.now().spelling, 24), " is no type of an element"));
  lexer.take();
  return *found;
}

// "[1, ?, 64]"; "[...]": of any rank.
void read_shape(MilLexer& lexer, ValueType& type) {
  lexer.expect("[");
  while (!lexer.is("]")) {
    if (!type.shape.empty() || type.any_rank) lexer.expect(",");
    if (static_cast<std::int64_t>(type.shape.size()) == kMostRank)
      lexer.fail(cat("a shape has more than ", kMostRank, " sizes"));
    if (lexer.skip("..."))
      type.any_rank = true;
    else
      type.shape.push_back(
          lexer.skip("?") ? kUnknown : lexer.whole("a size", 0, std::numeric_limits<std::int64_t>::max()));
  }
  lexer.expect("]");
  if (type.any_rank) type.shape.clear();
}

bool begins_generic(const MilLexer& lexer) {
  for (const std::string_view word : {"tensor", "state", "list", "tuple", "dict"})
    if (lexer.is_word(word)) return true;
  return false;
}

}  // namespace

void check_mil_depth(const MilLexer& lexer, int depth) {
  if (depth > kMostDepth) lexer.fail(cat("is nested deeper than ", kMostDepth));
}

// A value may be called as a type is: `x = state`, `y = string`.
bool at_mil_type(const MilLexer& lexer) {
  if (lexer.now().kind != MilToken::Kind::name) return false;
  const char behind = lexer.behind();
  if (begins_generic(lexer)) return behind == '<';
  const bool word = (behind >= 'a' && behind <= 'z') || (behind >= 'A' && behind <= 'Z') || behind == '_';
  return data_type_named(lexer.now().spelling).has_value() && (word || behind == '(');
}

ValueType read_mil_type(MilLexer& lexer, int depth) {
  check_mil_depth(lexer, depth);
  ValueType type;
  const std::string_view word = lexer.now().spelling;
  if (lexer.now().kind != MilToken::Kind::name) lexer.fail_expected("a type");
  if (const auto scalar = data_type_named(word)) {
    lexer.take();
    type.dtype = *scalar;
    return type;
  }
  if (!begins_generic(lexer)) lexer.fail_expected("a type");
  lexer.take();
  lexer.expect("<");
  if (word == "tensor") {
    type.dtype = read_data_type(lexer);
    lexer.expect(",");
    read_shape(lexer, type);
  } else if (word == "state") {
    type = read_mil_type(lexer, depth + 1);
    const auto elements = elements_of(type.shape);
    if (type.kind != Kind::tensor || type.any_rank || !elements || *elements > kMostStateElements)
      lexer.fail("a state must be a tensor of a known shape, of 2^40 elements at most");
    type.kind = Kind::state;
  } else {
    type.kind = word == "list" ? Kind::list : word == "tuple" ? Kind::tuple : Kind::dictionary;
    while (!lexer.is(">")) {
      if (!type.parts.empty()) lexer.expect(",");
      // The length of a list is behind its type and not kept.
      if (type.kind == Kind::list && type.parts.size() == 1) {
        if (!lexer.skip("?")) lexer.whole("a length", 0, std::numeric_limits<std::int64_t>::max());
        break;
      }
      type.parts.push_back(read_mil_type(lexer, depth + 1));
    }
    const std::size_t needed = type.kind == Kind::list         ? 1
                               : type.kind == Kind::dictionary ? 2
                                                               : type.parts.size();
    if (type.parts.size() != needed)
      lexer.fail(cat(word, " names ", type.parts.size(), " types; it needs ", needed));
  }
  lexer.expect(">");
  return type;
}

}  // namespace kvtide::coreml
