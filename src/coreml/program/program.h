// program.h: a Core ML program as it was read: functions, blocks, operations, values.
//
// The same for a package's protobuf and for the text of a compiled model; no reader is known here. Names are those of the MIL
// specification (coremltools, MIL.proto). Numbers lie as raw little-endian bytes, whichever field of the file they came from.
// Ownership: values of a file point into its mapping, which `Value::keeps` holds; everything else is owned.
// Thread rules: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvtide {
class MappedFile;
}

namespace kvtide::coreml {

// The numbers of the MIL specification.
enum class DataType : std::uint8_t {
  none = 0,
  boolean = 1,
  string = 2,
  fp16 = 10,
  fp32 = 11,
  fp64 = 12,
  bf16 = 13,
  int8 = 21,
  int16 = 22,
  int32 = 23,
  int64 = 24,
  int4 = 25,
  uint8 = 31,
  uint16 = 32,
  uint32 = 33,
  uint64 = 34,
  uint4 = 35,
  uint2 = 36,
  uint1 = 37,
  uint6 = 38,
  uint3 = 39,
  fp8e4m3fn = 40,
  fp8e5m2 = 41,
};

inline constexpr std::int64_t kUnknown = -1;  // a dimension that is known when the program runs

using Shape = std::vector<std::int64_t>;

struct ValueType {
  enum class Kind : std::uint8_t { tensor, list, tuple, dictionary, state };
  Kind kind = Kind::tensor;
  DataType dtype = DataType::none;  // of a tensor or a state
  Shape shape;                      // of a tensor or a state; empty: one number
  bool any_rank = false;            // a tensor whose rank is not known
  std::vector<ValueType> parts;     // of a list (one), a tuple, a dictionary (key, value)
};

struct NamedType {
  std::string name;
  ValueType type;
};

struct DictionaryEntry;
struct LateBytes;

// A constant. Elements below a byte are one bit stream, the first in the lowest bits of the first byte.
struct Value {
  ValueType type;
  std::span<const std::byte> bytes;  // of numbers; a boolean is a byte of 0 or 1
  std::vector<std::string> strings;  // of DataType::string
  std::vector<Value> parts;          // of a list or a tuple
  std::vector<DictionaryEntry> dictionary;
  bool from_blob = false;                  // of a weight file
  std::uint64_t blob_offset = 0;           // of its record; two values of one file and offset are one weight
  std::string_view blob_file;              // "@model_path/weights/weight.bin"; lies in what `keeps` holds
  std::shared_ptr<const void> keeps;       // what holds `bytes`
  std::shared_ptr<const MappedFile> file;  // that `bytes` lie in, if they lie in one
  std::shared_ptr<const LateBytes> late;   // instead of `bytes`: made when a file is written (write/values.h)
};

// Not a std::pair, which may not be named before its halves are complete.
struct DictionaryEntry {
  DictionaryEntry(Value key_value, Value held) : key(std::move(key_value)), value(std::move(held)) {}
  Value key, value;
};

// What an operation takes: a name of its block or of one around it, or a constant in place.
struct Binding {
  std::string name;  // empty: `value`
  std::shared_ptr<const Value> value;
};

struct Argument {
  std::string name;               // of the parameter: "x", "begin"
  std::vector<Binding> bindings;  // several: a tuple ("values" of concat)
};

struct Attribute {
  std::string name;
  Value value;
};

struct Block;

struct Operation {
  std::string type;  // "slice_update"
  std::vector<Argument> inputs;
  std::vector<NamedType> outputs;
  std::vector<Attribute> attributes;  // "val" of a const, "name"
  std::vector<Block> blocks;          // of cond and while_loop
  std::size_t line =
      0;  // of the MIL text: its line; of a package: the operation's number in its block, from 1

  const Argument* input(std::string_view wanted) const;   // nullptr: not given
  const Value* attribute(std::string_view wanted) const;  // nullptr: not given
};

struct Block {
  std::vector<NamedType> inputs;  // loop variables
  std::vector<std::string> outputs;
  std::vector<Operation> operations;  // in the order in which they run
};

struct Function {
  std::string name;               // "main"
  std::string opset;              // "CoreML8", "ios18"
  std::vector<NamedType> inputs;  // states among them, by their type
  Block block;                    // the specialization that `opset` names
};

struct Program {
  std::string source;  // the file, for messages
  std::vector<Function> functions;
  std::vector<std::pair<std::string, std::string>> build_info;

  const Function* function(std::string_view wanted) const;  // nullptr: there is none
};

}  // namespace kvtide::coreml
