#include "coreml/program/wire_program.h"

#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.h"
#include "coreml/program/check_program.h"
#include "coreml/program/wire_values.h"

namespace kvtide::coreml {
namespace {

Block read_block(WireMessage message, WeightFiles& weights);

Binding read_binding(WireMessage message, WeightFiles& weights) {
  Binding out;
  while (message.next()) {
    if (message.field() == 1) out.name = message.text("name");
    if (message.field() == 2)
      out.value = std::make_shared<const Value>(read_value(message.message("value"), weights));
  }
  if (out.value) out.name.clear();
  if (!out.value && out.name.empty()) message.fail("is neither a name nor a value");
  return out;
}

Argument read_argument(WireMessage message, WeightFiles& weights) {
  Argument out;
  out.name = message.key();
  std::int64_t number = 0;
  while (message.next())
    if (message.field() == 1)
      out.bindings.push_back(read_binding(message.message("arguments", number++), weights));
  return out;
}

Operation read_operation(WireMessage message, WeightFiles& weights) {
  Operation out;
  std::int64_t outputs = 0, blocks = 0;
  while (message.next()) {
    switch (message.field()) {
      case 1:
        out.type = message.text("type");
        break;
      case 2:
        out.inputs.push_back(read_argument(message.entry("inputs"), weights));
        break;
      case 3:
        out.outputs.push_back(read_named_type(message.message("outputs", outputs++)));
        break;
      case 4:
        out.blocks.push_back(read_block(message.message("blocks", blocks++), weights));
        break;
      case 5: {
        const WireMessage attribute = message.entry("attributes");
        out.attributes.push_back({attribute.key(), read_value(attribute, weights)});
        break;
      }
      default:
        break;
    }
  }
  if (out.type.empty()) message.fail_at("type", "is missing");
  return out;
}

Block read_block(WireMessage message, WeightFiles& weights) {
  Block out;
  std::int64_t inputs = 0, outputs = 0, operations = 0;
  while (message.next()) {
    if (message.field() == 1) out.inputs.push_back(read_named_type(message.message("inputs", inputs++)));
    if (message.field() == 2) out.outputs.push_back(message.text("outputs", outputs++));
    if (message.field() == 3) {
      out.operations.push_back(read_operation(message.message("operations", operations++), weights));
      out.operations.back().line = static_cast<std::size_t>(operations);
    }
  }
  return out;
}

Function read_function(WireMessage message, WeightFiles& weights) {
  Function out;
  out.name = message.key();
  if (out.name.empty()) message.fail_at("key", "is missing: a function has a name");
  std::int64_t inputs = 0;
  for (WireMessage at = message; at.next();) {
    if (at.field() == 1) out.inputs.push_back(read_named_type(at.message("inputs", inputs++)));
    if (at.field() == 2) out.opset = at.text("opset");
  }
  if (out.opset.empty()) message.fail_at("opset", "is missing");
  bool found = false;
  while (message.next()) {
    if (message.field() != 3) continue;
    const WireMessage block = message.entry("block_specializations");
    if (block.key() != out.opset) continue;
    out.block = read_block(block, weights);
    found = true;
  }
  if (!found) message.fail_at("block_specializations", cat("has no block for the opset ", quoted(out.opset)));
  return out;
}

void read_build_info(const WireMessage& message, const Value& value, Program& program) {
  for (const auto& [key, held] : value.dictionary) {
    if (key.strings.size() != 1 || held.strings.size() != 1)
      message.fail("holds more than one string for another");
    program.build_info.emplace_back(key.strings[0], held.strings[0]);
  }
}

}  // namespace

Program read_program(WireMessage message, WeightFiles& weights) {
  Program out;
  std::int64_t version = 0;
  while (message.next()) {
    if (message.field() == 1) version = message.integer("version");
    if (message.field() == 2) {
      WireMessage function = message.entry("functions");
      if (out.functions.size() == kMostFunctions) function.fail(cat("there are more than ", kMostFunctions));
      if (out.function(function.key())) function.fail("stands twice");
      out.functions.push_back(read_function(function, weights));
    }
    if (message.field() == 4) {
      const WireMessage attribute = message.entry("attributes");
      if (attribute.key() == "buildInfo") read_build_info(attribute, read_value(attribute, weights), out);
    }
  }
  if (version != 1) message.fail_at("version", cat("is ", version, "; version 1 is read"));
  if (out.functions.empty()) message.fail_at("functions", "is empty: a program has a function");
  return out;
}

}  // namespace kvtide::coreml
