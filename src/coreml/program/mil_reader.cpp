#include "coreml/program/mil_reader.h"

#include <memory>
#include <utility>

#include "base/text.h"
#include "coreml/program/check_program.h"
#include "coreml/program/mil_lexer.h"
#include "coreml/program/mil_literals.h"
#include "coreml/program/mil_types.h"

namespace kvtide::coreml {
namespace {

constexpr int kMostBlocks = 32;  // in each other
constexpr std::size_t kMostOperations = 1 << 21;

class MilReader {
 public:
  MilReader(std::string_view text, const std::string& file, WeightFiles& weights)
      : lexer_(text, file), weights_(weights) {
    out_.program.source = file;
  }

  MilText read() {
    if (!lexer_.is_word("program")) lexer_.fail_expected("program(1.0)");
    lexer_.take();
    lexer_.expect("(");
    const std::string_view version = lexer_.now().spelling;
    if (version != "1" && !version.starts_with("1."))
      lexer_.fail(cat("version ", quoted(version, 24), "; versions 1.0 to 1.3 are read"),
                  ErrorCode::unsupported);
    lexer_.take();
    lexer_.expect(")");
    for (const Attribute& attribute : attributes())
      if (attribute.name == "buildInfo") build_info(attribute.value);
    lexer_.expect("{");
    while (!lexer_.skip("}")) function();
    if (lexer_.now().kind != MilToken::Kind::end) lexer_.fail("text stands behind the program");
    if (out_.program.functions.empty()) lexer_.fail("the program has no function");
    check_program(out_.program, Places::lines, "program");
    return std::move(out_);
  }

 private:
  // [name = value, ...], which may be missing.
  std::vector<Attribute> attributes() {
    std::vector<Attribute> out;
    if (!lexer_.skip("[")) return out;
    while (!lexer_.is("]")) {
      if (!out.empty()) lexer_.expect(",");
      std::string name(lexer_.name("the name of an attribute"));
      lexer_.expect("=");
      out.push_back({std::move(name), read_mil_value(lexer_, weights_)});
    }
    lexer_.expect("]");
    return out;
  }

  void build_info(const Value& value) {
    for (const auto& [key, held] : value.dictionary)
      if (key.strings.size() == 1 && held.strings.size() == 1)
        out_.program.build_info.emplace_back(key.strings[0], held.strings[0]);
  }

  NamedType typed_name() {
    NamedType out;
    out.type = read_mil_type(lexer_);
    out.name = lexer_.name("a name");
    return out;
  }

  std::vector<NamedType> parameters() {
    std::vector<NamedType> out;
    lexer_.expect("(");
    while (!lexer_.is(")")) {
      if (!out.empty()) lexer_.expect(",");
      out.push_back(typed_name());
    }
    lexer_.expect(")");
    return out;
  }

  void function() {
    lexer_.subject({});
    if (!lexer_.is_word("func")) lexer_.fail_expected("func or }");
    lexer_.take();
    Function out;
    out.name = lexer_.name("the name of a function");
    if (out_.program.functions.size() == kMostFunctions)
      lexer_.fail(cat("the program has more than ", kMostFunctions, " functions"));
    if (out_.program.function(out.name)) lexer_.fail(cat("the function ", quoted(out.name), " stands twice"));
    lexer_.expect("<");
    out.opset = lexer_.name("the opset of a function");
    lexer_.expect(">");
    out.inputs = parameters();
    std::vector<Attribute> about = attributes();
    out.block = block(0);
    lexer_.skip(";");
    out_.program.functions.push_back(std::move(out));
    out_.attributes.push_back(std::move(about));
  }

  // { operations } -> (names)
  Block block(int depth) {
    if (depth > kMostBlocks) lexer_.fail(cat("blocks are nested deeper than ", kMostBlocks));
    Block out;
    lexer_.expect("{");
    while (!lexer_.skip("}")) out.operations.push_back(operation(depth));
    lexer_.subject({});
    lexer_.expect("->");
    lexer_.expect("(");
    while (!lexer_.is(")")) {
      if (!out.outputs.empty()) lexer_.expect(",");
      out.outputs.emplace_back(lexer_.name("the name of an output"));
    }
    lexer_.expect(")");
    return out;
  }

  Operation operation(int depth) {
    if (++operations_ > kMostOperations)
      lexer_.fail(cat("there are more than ", kMostOperations, " operations"));
    Operation out;
    out.line = lexer_.now().line;
    lexer_.subject({});
    // A type begins what is made; without one the operation makes nothing, as write_state.
    if (lexer_.is("(")) {
      out.outputs = parameters();
      if (out.outputs.empty()) lexer_.fail("nothing is made where a name should be");
      lexer_.expect("=");
    } else if (at_mil_type(lexer_)) {
      do out.outputs.push_back(typed_name());
      while (lexer_.skip(","));
      lexer_.expect("=");
    }
    const std::string_view type = lexer_.name("the type of an operation");
    out.type = type;
    lexer_.subject(type);
    arguments(out);
    out.attributes = attributes();
    if (lexer_.skip("(")) {
      do {
        std::vector<NamedType> variables;
        if (lexer_.is("(")) variables = parameters();
        out.blocks.push_back(block(depth + 1));
        out.blocks.back().inputs = std::move(variables);
      } while (lexer_.skip(","));
      lexer_.expect(")");
    }
    lexer_.expect(";");
    return out;
  }

  void arguments(Operation& operation) {
    lexer_.expect("(");
    while (!lexer_.is(")")) {
      if (!operation.inputs.empty()) lexer_.expect(",");
      Argument argument;
      argument.name = lexer_.name("the name of an input");
      lexer_.expect("=");
      if (lexer_.skip("(")) {
        while (!lexer_.is(")")) {
          if (!argument.bindings.empty()) lexer_.expect(",");
          argument.bindings.push_back(binding());
        }
        lexer_.expect(")");
      } else {
        argument.bindings.push_back(binding());
      }
      operation.inputs.push_back(std::move(argument));
    }
    lexer_.expect(")");
  }

  Binding binding() {
    Binding out;
    if (at_mil_type(lexer_))
      out.value = std::make_shared<const Value>(read_mil_value(lexer_, weights_));
    else
      out.name = lexer_.name("a name or a constant");
    return out;
  }

  MilLexer lexer_;
  WeightFiles& weights_;
  MilText out_;
  std::size_t operations_ = 0;
};

}  // namespace

MilText read_mil(std::string_view text, const std::string& file, WeightFiles& weights) {
  return MilReader(text, file, weights).read();
}

}  // namespace kvtide::coreml
