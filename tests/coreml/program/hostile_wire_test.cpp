// Model files that break one rule each.
#include <gtest/gtest.h>

#include "tests/coreml/hostile_package.h"

namespace kvtide::testing {
namespace {

using P = PackageFiles;

// Of the small package: the function, its block, and where things stand in them.
const std::string kFunction = "502/2/2", kBlock = kFunction + "/3/2";
std::string operation(int number, const std::string& inside = "") {
  return cat(kBlock, "/3[", number, "]", inside.empty() ? "" : "/", inside);
}
// The constant of operation 0, 1, 2 or 3.
std::string constant(int number, const std::string& inside) { return operation(number, "5[1]/2/" + inside); }
// The type of what operation 5, an add, makes.
std::string made(const std::string& inside) { return operation(5, "3/2/1/" + inside); }
const std::string kImmediate = "3/1/2/1";  // of int32s: immediateValue.tensor.ints.values

auto drop(const std::string& path) {
  return [=](P& p) { p.model = without(p.model, path); };
}
auto whole(const std::string& path, std::uint64_t value) {
  return [=](P& p) { p.model = with_whole(p.model, path, value); };
}
auto bytes(const std::string& path, const std::string& value) {
  return [=](P& p) { p.model = with_bytes(p.model, path, value); };
}
auto doubled(const std::string& path) {
  return [=](P& p) { p.model = twice(p.model, path); };
}
auto more(const std::string& path, const std::string& fields) {
  return [=](P& p) { p.model = with_more(p.model, path, fields); };
}
auto fewer(const std::string& path, std::size_t count) {
  return [=](P& p) { p.model = with_fewer(p.model, path, count); };
}
auto append(const std::string& fields) {
  return [=](P& p) { p.model += fields; };
}

// So many messages in each other, all of them field `number`.
std::string nested(std::uint32_t number, int depth) {
  std::string out;
  for (int i = 0; i < depth; ++i) out = bytes_field(number, out);
  return out;
}
// A list of a list of ... as a type.
std::string deep_type() {
  std::string out = bytes_field(1, whole_field(1, 10));
  for (int i = 0; i < 200; ++i) out = bytes_field(2, bytes_field(1, out));
  return out;
}

const std::string kMain = "Model.mlProgram.functions[main]";
const std::string kBlockPath = kMain + ".block_specializations[CoreML8].operations[";
constexpr std::uint64_t kMinusOne = ~std::uint64_t{0};

const std::vector<HostilePackage> kModel = {
    {"Empty", [](P& p) { p.model.clear(); }, "the file is empty"},
    {"OneByte", [](P& p) { p.model = "\x80"; }, "Model: is broken"},
    {"CutInTheMiddle", [](P& p) { p.model.resize(p.model.size() / 2); }, "Model: is broken behind field"},
    {"OneByteShort", [](P& p) { p.model.pop_back(); }, "Model: is broken"},
    {"FieldZero", append(std::string("\0\0", 2)), "Model: is broken"},
    {"GroupsAreNoMore", append("\x0b"), "Model: is broken"},
    {"VarintOfElevenBytes", append("\x08" + std::string(11, '\xff')), "Model: is broken"},
    {"LengthBeyondTheEnd", append("\x12\xff\xff\xff\xff\x0f"), "Model: is broken"},
    {"NoSpecification", drop("1"), "Model.specificationVersion: is missing"},
    {"SpecificationZero", whole("1", 0), "Model.specificationVersion: is 0"},
    {"SpecificationNegative", whole("1", kMinusOne), "Model.specificationVersion: is -1"},
    {"SpecificationAsText", bytes("1", "9"), "Model.specificationVersion: holds no whole number"},
    {"NoDescription", drop("2"), "Model.description: is missing"},
    {"DescriptionTwice", doubled("2"), "Model.description: stands twice"},
    {"DescriptionIsANumber", whole("2", 7), "Model.description: holds a number"},
    {"NoProgram", drop("502"), "Model: holds no model"},
    {"ProgramTwice", doubled("502"), "Model.mlProgram: is the second model"},
    {"NeuralNetwork", append(bytes_field(500, "")), "Model: is a neural network"},
    {"LinkedModel", append(bytes_field(556, "")), "Model: is a linked model"},
    {"PipelineBesideAProgram", append(bytes_field(202, "")), "Model.pipeline: is the second model"},
    {"PipelineWithoutModels", [](P& p) { p.model = without(p.model, "502") + bytes_field(202, ""); },
     "Model.pipeline.models: is empty"},
    {"PipelineOfABrokenModel",
     [](P& p) { p.model = without(p.model, "502") + bytes_field(202, bytes_field(1, "\x08")); },
     "Model.pipeline.models[0]: is broken"},
    {"PipelinesInPipelines",
     [](P& p) {
       std::string inner = bytes_field(202, "");
       for (int i = 0; i < 80; ++i) inner = bytes_field(202, bytes_field(1, inner));
       p.model = without(p.model, "502") + inner;
     },
     "nested deeper than 100 messages"},
};
HOSTILE_PACKAGES(CoremlHostileModel, kModel);

const std::vector<HostilePackage> kProgram = {
    {"NoVersion", drop("502/1"), "Model.mlProgram.version: is 0; version 1 is read"},
    {"VersionTwo", whole("502/1", 2), "Model.mlProgram.version: is 2"},
    {"NoFunction", drop("502/2"), "Model.mlProgram.functions: is empty"},
    {"FunctionTwice", doubled("502/2"), "Model.mlProgram.functions[main]: stands twice"},
    {"FunctionWithoutName", drop("502/2/1"), "Model.mlProgram.functions.key: is missing"},
    {"FunctionNameIsNoText", bytes("502/2/1", "\xff"), "functions.key: is no UTF-8 at byte 0"},
    {"FunctionNameWithALineFeed", bytes("502/2/1", "a\nb"), "which no name may be"},
    {"NoOpset", drop(kFunction + "/2"), kMain + ".opset: is missing"},
    {"OpsetWithoutBlock", bytes(kFunction + "/2", "CoreML9"),
     "block_specializations: has no block for the opset 'CoreML9'"},
    {"NoBlock", drop(kFunction + "/3"), "block_specializations: has no block"},
    {"InputWithoutName", drop(kFunction + "/1/1"), kMain + ".inputs[0].name: is missing"},
    {"InputWithoutType", drop(kFunction + "/1/2"), kMain + ".inputs[0].type: is missing"},
    {"InputWithAnEmptyType", bytes(kFunction + "/1/2", ""), kMain + ".inputs[0].type: names no type"},
    {"InputTwice", doubled(kFunction + "/1"), "makes 'x', which was made before"},
    {"BlockIsCut", fewer(kBlock, 3), kMain + ".block_specializations[CoreML8]"},
    {"OutputThatNothingMakes", bytes(kBlock + "/2", "nothing"), ".outputs: uses 'nothing'"},
    {"OperationWithoutType", drop(operation(5, "1")), kBlockPath + "5].type: is missing"},
    {"OperationTypeIsNoText", bytes(operation(5, "1"), "\xc3("), kBlockPath + "5].type: is no UTF-8"},
    {"OperationTypeWithASpace", bytes(operation(5, "1"), "a b"), kBlockPath + "5]: has an operation 'a b'"},
    {"OperationIsANumber", whole(operation(5), 1), kBlockPath + "5]: holds a number"},
    {"OperationIsCut", fewer(operation(5), 1), kBlockPath + "5]"},
    {"InputOfAnOperationWithoutName", drop(operation(5, "2/1")),
     kBlockPath + "5]: has an input without a name"},
    {"InputOfAnOperationTwice", doubled(operation(5, "2")), kBlockPath + "5]: has two inputs 'x'"},
    {"BindingOfNothing", bytes(operation(5, "2/2/1"), ""),
     ".inputs[x].arguments[0]: is neither a name nor a value"},
    {"UnknownName", bytes(operation(5, "2/2/1/1"), "who"), kBlockPath + "5].inputs[x]: uses 'who'"},
    {"NameFromBelow", bytes(operation(4, "2/2/1/1"), "y"), kBlockPath + "4].inputs[input]: uses 'y'"},
    {"ResultTwice", doubled(operation(5, "3")), "which was made before"},
    {"ResultWithoutName", drop(operation(5, "3/1")), kBlockPath + "5].outputs[0].name: is missing"},
    {"ResultWithoutType", drop(operation(5, "3/2")), kBlockPath + "5].outputs[0].type: is missing"},
    {"AttributeWithoutName", drop(operation(0, "5[1]/1")),
     kBlockPath + "0]: has an attribute without a name"},
    {"AttributeWithoutValue", drop(operation(0, "5[1]/2")), "attributes[val].type: is missing"},
    {"BlocksInBlocks", more(operation(5), nested(4, 1) + bytes_field(4, bytes_field(3, nested(4, 1)))),
     ".blocks[1].operations[0].type: is missing"},
    {"BlocksTooDeep",
     [](P& p) {
       std::string block;
       for (int i = 0; i < 60; ++i) block = bytes_field(3, bytes_field(1, "cond") + bytes_field(4, block));
       p.model = with_more(p.model, operation(5), bytes_field(4, block));
     },
     "nested deeper than 100 messages"},
    {"ManyInputs",
     [](P& p) {
       std::string inputs;
       for (int i = 0; i < 70; ++i)
         inputs += bytes_field(
             2, bytes_field(1, cat("i", i)) + bytes_field(2, bytes_field(1, bytes_field(1, "x"))));
       p.model = with_more(p.model, operation(5), inputs);
     },
     kBlockPath + "5]: has more than 64 inputs"},
    {"BuildInfoOfNumbers",
     [](P& p) {
       const auto replaced = without(without(p.model, "502/4/2/3/4/1/2/3"), "502/4/2/3/4/1/2/2");
       p.model = replaced;
     },
     "attributes[buildInfo].immediateValue.dictionary.values[0].value.type: is missing"},
};
HOSTILE_PACKAGES(CoremlHostileProgram, kProgram);

const std::vector<HostilePackage> kTypes = {
    {"NoDataType", drop(made("1")), "outputs[0].type.tensorType.dataType: is missing"},
    {"DataTypeUnknown", whole(made("1"), 99), "dataType: 99 is no type of an element"},
    {"DataTypeZero", whole(made("1"), 0), "dataType: 0 is no type"},
    {"DataTypeHuge", whole(made("1"), std::uint64_t{1} << 40), "dataType: is 1099511627776"},
    {"DataTypeAsText", bytes(made("1"), "fp16"), "dataType: holds no whole number"},
    {"RankTooSmall", whole(made("2"), 1), "tensorType.rank: is 1; there are 2 dimensions"},
    {"RankHuge", whole(made("2"), 1u << 20), "tensorType.rank: is 1048576; it must be between -1 and 32"},
    {"RankMissing", drop(made("2")), "tensorType.rank: is 0; there are 2 dimensions"},
    {"DimensionOfNothing", bytes(made("3"), ""), "dimensions[0]: is neither constant nor unknown"},
    {"DimensionNegative", bytes(made("3[1]"), bytes_field(1, whole_field(1, kMinusOne))),
     "dimensions[1].constant.size: is -1"},
    {"ListWithoutType", bytes(operation(5, "3/2"), bytes_field(2, "")),
     "type.listType: names 0 types; it needs 1"},
    {"DictionaryWithoutValueType",
     bytes(operation(5, "3/2"), bytes_field(4, bytes_field(1, bytes_field(1, whole_field(1, 2))))),
     "type.dictionaryType: names 0 types"},
    {"TypesTooDeep", bytes(operation(5, "3/2"), deep_type()), "is nested deeper than 100 messages"},
    {"StateOfNothing", bytes(kFunction + "/1[2]/2", bytes_field(5, "")),
     "inputs[2].type.stateType.wrappedType: is missing"},
    {"StateOfAList",
     bytes(
         kFunction + "/1[2]/2",
         bytes_field(5, bytes_field(1, bytes_field(2, bytes_field(1, bytes_field(1, whole_field(1, 10))))))),
     "wrappedType: is no tensor of a known shape"},
    {"StateOfUnknownShape", bytes(kFunction + "/1[2]/2/5/1/1/3", bytes_field(2, "")),
     "wrappedType: is no tensor of a known shape"},
    {"StateTooLarge",
     bytes(kFunction + "/1[2]/2/5/1/1/3", bytes_field(1, whole_field(1, std::uint64_t{1} << 50))),
     "a state has 2^40 at most"},
    {"StateSizeOverflows",
     bytes(kFunction + "/1[2]/2/5/1/1/3", bytes_field(1, whole_field(1, std::uint64_t{1} << 62))),
     "wrappedType: is no tensor of a known shape"},
};
HOSTILE_PACKAGES(CoremlHostileType, kTypes);

const std::vector<HostilePackage> kConstants = {
    {"NoType", drop(constant(0, "2")), kBlockPath + "0].attributes[val].type: is missing"},
    {"NoValue", drop(constant(0, "3")),
     "attributes[val]: holds neither an immediateValue nor a blobFileValue"},
    {"EmptyImmediate", bytes(constant(0, "3"), ""), "attributes[val].immediateValue: holds nothing"},
    {"TooFewNumbers", bytes(constant(0, kImmediate), "\x01"),
     "attributes[val]: holds 4 bytes; 2 elements of int32 have 8"},
    {"TooManyNumbers", bytes(constant(0, kImmediate), "\x01\x02\x03"), "attributes[val]: holds 12 bytes"},
    {"NumberCut", bytes(constant(0, kImmediate), "\x01\x80"), "immediateValue.tensor.ints.values: is broken"},
    {"NumberTooLarge", bytes(constant(0, kImmediate), varint(std::uint64_t{1} << 31) + "\x01"),
     "ints.values: 2147483648 is no element of int32"},
    {"NumbersInTheFieldOfFloats",
     bytes(constant(0, "3/1"), bytes_field(1, bytes_field(1, std::string(8, '\0')))),
     "tensor.floats: cannot hold elements of int32"},
    {"NumbersInTheFieldOfDoubles",
     bytes(constant(0, "3/1"), bytes_field(6, bytes_field(1, std::string(16, '\0')))),
     "tensor.doubles: cannot hold"},
    {"NumbersInTheFieldOfBools", bytes(constant(0, "3/1"), bytes_field(3, bytes_field(1, "\x01\x01"))),
     "tensor.bools: cannot hold"},
    {"NumbersInTheFieldOfStrings", bytes(constant(0, "3/1"), bytes_field(4, bytes_field(1, "x"))),
     "tensor.strings: cannot hold"},
    {"BytesOfAWrongLength", bytes(constant(0, "3/1"), bytes_field(7, bytes_field(1, "abc"))),
     "attributes[val]: holds 3 bytes"},
    {"ScalarAsTuple", bytes(constant(0, "3"), bytes_field(2, "")),
     "immediateValue.tuple: is not what the type says"},
    {"ScalarAsDictionary", bytes(constant(0, "3"), bytes_field(4, "")),
     "immediateValue.dictionary: is not what the type says"},
    {"UnknownSize", bytes(constant(0, "2/1/3"), bytes_field(2, "")), "attributes[val]: has no known shape"},
    {"HugeSize", bytes(constant(0, "2/1/3"), bytes_field(1, whole_field(1, std::uint64_t{1} << 62))),
     "attributes[val]: has no known shape"},
    {"LargeSizeOfFewBytes",
     bytes(constant(0, "2/1/3"), bytes_field(1, whole_field(1, std::uint64_t{1} << 40))),
     "attributes[val]: holds 8 bytes; 1099511627776 elements"},
    {"StringsMissing", bytes(constant(1, "3/1/4"), ""),
     kBlockPath + "1].attributes[val]: holds 0 strings; its shape needs 1"},
    {"StringIsNoText", bytes(constant(1, "3/1/4/1"), "\xf0\x9f"), "tensor.strings.values[0]: is no UTF-8"},
    {"ConstantOfAState",
     bytes(constant(0, "2"),
           bytes_field(5, bytes_field(1, bytes_field(1, whole_field(1, 10) + whole_field(2, 0))))),
     "immediateValue.tensor: is not what the type says"},
    {"BlobOfAString", bytes(constant(2, "2/1/1"), ""), "dataType: holds no whole number"},
    {"BlobNameMissing", drop(constant(2, "5/1")),
     kBlockPath + "2].attributes[val].blobFileValue: fileName: ''"},
    {"BlobNameWithoutModelPath", bytes(constant(2, "5/1"), "weights/weight.bin"),
     "does not begin with @model_path/"},
    {"BlobNameLeavesThePackage", bytes(constant(2, "5/1"), "@model_path/../../../secret"),
     "leaves the package"},
    {"BlobNameIsAbsolute", bytes(constant(2, "5/1"), "@model_path//etc/passwd"), "leaves the package"},
    {"BlobNameWithAZeroByte", bytes(constant(2, "5/1"), std::string("@model_path/a\0b", 15)),
     "holds a control character"},
    {"BlobNameEmpty", bytes(constant(2, "5/1"), "@model_path/"), "is empty"},
    {"BlobIsMissing", bytes(constant(2, "5/1"), "@model_path/weights/other.bin"), "cannot open"},
    {"BlobIsAFolder", bytes(constant(2, "5/1"), "@model_path/weights"), "is a directory"},
    {"BlobOffsetNegative", whole(constant(2, "5/2"), kMinusOne), "blobFileValue.offset: is -1"},
    {"BlobOffsetZero", whole(constant(2, "5/2"), 0), "record at byte 0: records lie at multiples of 64"},
    {"BlobOffsetUneven", whole(constant(2, "5/2"), 65), "record at byte 65"},
    {"BlobOffsetBeyondTheEnd", whole(constant(2, "5/2"), 1u << 20),
     "record at byte 1048576: the file ends at byte"},
    {"BlobOffsetHuge", whole(constant(2, "5/2"), 0x7fffffffffffffc0), "the file ends at byte"},
    {"BlobOffsetOfData", whole(constant(2, "5/2"), 128),
     "record at byte 128: sentinel: no record begins here"},
    {"BlobOfAnotherType", whole(constant(2, "2/1/1"), 11), "dtype: 1 (fp16); the program says fp32"},
    {"BlobOfAnotherShape", bytes(constant(2, "2/1/3"), bytes_field(1, whole_field(1, 8))),
     "sizeInBytes: 512; 128 elements of fp16 have 256"},
    {"BlobOfUnknownShape", bytes(constant(2, "2/1/3"), bytes_field(2, "")),
     "a weight must be a tensor whose shape is known"},
};
HOSTILE_PACKAGES(CoremlHostileConstant, kConstants);

const std::vector<HostilePackage> kDescription = {
    {"InputWithoutName", drop("2/1/1"), "Model.description.input[0].name: is missing"},
    {"InputWithoutType", drop("2/1/3"), "Model.description.input[0].type: is missing"},
    {"InputOfNoType", bytes("2/1/3", ""), "input[0].type: names no type"},
    {"InputOfAnUnknownType", whole("2/1/3/5/2", 12345),
     "multiArrayType.dataType: 12345 is no type of an array"},
    {"InputWithoutArrayType", drop("2/1/3/5/2"), "multiArrayType.dataType: is missing"},
    {"InputMissing", drop("2/1"), "Model.description.input: there are 1; the function 'main' has 2"},
    {"InputOfAnotherName", bytes("2/1/1", "other"), "Model.description.input: 'other' is no input"},
    {"NegativeSize", more("2/1/3/5", whole_field(1, kMinusOne)), "multiArrayType.shape: holds the size -1"},
    {"ManySizes", more("2/1/3/5", bytes_field(1, std::string(40, '\x01'))),
     "multiArrayType.shape: has more than 32 sizes"},
    {"RangeBackwards", bytes("2/1/3/5/31/1", whole_field(1, 9) + whole_field(2, 3)),
     "shapeRange.sizeRanges[0]: goes from 9 to 3"},
    {"RangesMissing", drop("2/1/3/5/31/1"), "shapeRange.sizeRanges: there are 1; the shape has 2 sizes"},
    {"EnumeratedOfAnotherRank", bytes("2/1[1]/3/5/21/1", bytes_field(1, "\x01\x02")),
     "enumeratedShapes.shapes[0]: has 2 sizes; the default has 1"},
    {"DefaultIsText", more("2/1/3/5", bytes_field(51, "x")),
     "floatDefaultValue: holds no floating-point number"},
    {"StateMissing", drop("2/13"), "Model.description.state: there are 0; the function 'main' has 1"},
    {"StateOfNothing", bytes("2/13/3/8", ""), "state[0].type.stateType.arrayType: is missing"},
    {"StateOfAnotherShape", bytes("2/13/3/8/1/1", "\x01\x20"),
     "Model.description.state: 'cache' has another type or shape"},
    {"OutputThatIsNone", bytes("2/10/1", "other"), "Model.description.output: 'other' is no output"},
    {"DefaultFunctionUnknown", more("2", bytes_field(21, "other")),
     "defaultFunctionName: there is no function 'other'"},
    {"FunctionUnknown", more("2", bytes_field(20, bytes_field(1, "other"))),
     "Model.description.functions: the program has no function 'other'"},
    {"FunctionWithoutName", more("2", bytes_field(20, "")),
     "Model.description.functions[0].name: is missing"},
    {"FunctionTwice",
     more("2", bytes_field(20, bytes_field(1, "main")) + bytes_field(20, bytes_field(1, "main"))),
     "functions[1]: the function 'main' stands twice"},
    {"MetadataIsNoText", more("2/100", bytes_field(3, "\x80")),
     "Model.description.metadata.author: is no UTF-8"},
    {"MetadataIsCut", fewer("2/100", 1), "Model.description.metadata"},
};
HOSTILE_PACKAGES(CoremlHostileDescription, kDescription);

}  // namespace
}  // namespace kvtide::testing
