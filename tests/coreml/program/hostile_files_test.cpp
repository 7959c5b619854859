// Weight files, manifests and texts that break one rule each.
#include <gtest/gtest.h>

#include "coreml/program/mil_printer.h"
#include "tests/coreml/hostile_package.h"

namespace kvtide::testing {
namespace {

using P = PackageFiles;

// The record of the fp16 weight is at byte 64, that of the uint3 at 64 + 64 + 512.
constexpr std::size_t kFirst = 64, kSecond = 64 + 64 + 512;

template <class T>
auto at(std::size_t offset, T value) {
  return [=](P& p) { std::memcpy(p.weights.data() + offset, &value, sizeof value); };
}

const std::vector<HostilePackage> kWeights = {
    {"Missing", [](P& p) { p.weights.clear(); }, "blobFileValue: "},
    {"OneByte", [](P& p) { p.weights.resize(1); }, "weights/weight.bin: header: has 1 bytes"},
    {"HeaderAlone", [](P& p) { p.weights.resize(64); }, "record at byte 64: the file ends at byte 64"},
    {"RecordIsCut", [](P& p) { p.weights.resize(100); }, "record at byte 64: the file ends at byte 100"},
    {"DataIsCut", [](P& p) { p.weights.resize(200); },
     "512 bytes from byte 128 on, but the file has 200 bytes"},
    {"VersionOne", at<std::uint32_t>(4, 1), "header: version 1; version 2 is read"},
    {"VersionHuge", at<std::uint32_t>(4, 0xffffffff), "header: version 4294967295"},
    {"SentinelOfAnother", at<std::uint32_t>(kFirst, 0xDEADBEEE), "record at byte 64: sentinel"},
    {"TypeZero", at<std::uint32_t>(kFirst + 4, 0), "dtype: 0 (none); the program says fp16"},
    {"TypeUnknown", at<std::uint32_t>(kFirst + 4, 200), "dtype: 200 (none)"},
    {"TypeOfAnother", at<std::uint32_t>(kFirst + 4, 5), "dtype: 5 (bf16)"},
    {"SizeZero", at<std::uint64_t>(kFirst + 8, 0), "sizeInBytes: 0; 256 elements of fp16 have 512"},
    {"SizeHuge", at<std::uint64_t>(kFirst + 8, ~std::uint64_t{0}), "sizeInBytes: 18446744073709551615"},
    {"DataOffsetZero", at<std::uint64_t>(kFirst + 16, 0), "offset: 512 bytes from byte 0 on"},
    {"DataOffsetUneven", at<std::uint64_t>(kFirst + 16, 130), "offset: 130 is no multiple of 64"},
    {"DataOffsetBeyondTheEnd", at<std::uint64_t>(kFirst + 16, 1 << 20), "512 bytes from byte 1048576 on"},
    {"DataOffsetWraps", at<std::uint64_t>(kFirst + 16, ~std::uint64_t{63}), "but the file has"},
    {"PaddingOfAnother", at<std::uint64_t>(kSecond + 24, 3), "padding_size_in_bits: 3; it is 1"},
};
HOSTILE_PACKAGES(CoremlHostileWeights, kWeights);

auto swap(const std::string& from, const std::string& to) {
  return [=](P& p) {
    const std::size_t found = p.manifest.find(from);
    if (found == p.manifest.npos) throw std::logic_error("the manifest holds no " + from);
    p.manifest.replace(found, from.size(), to);
  };
}

const std::vector<HostilePackage> kManifest = {
    {"Empty", [](P& p) { p.manifest.clear(); }, "Manifest.json: the file is empty"},
    {"NoJson", [](P& p) { p.manifest = "x"; }, "Manifest.json: "},
    {"Cut", [](P& p) { p.manifest.resize(p.manifest.size() / 2); }, "Manifest.json: "},
    {"AList", [](P& p) { p.manifest = "[]"; }, "the file is a list; it must be an object"},
    {"NoVersion", swap("fileFormatVersion", "x"), "the key 'fileFormatVersion' is missing"},
    {"NewerVersion", swap("1.0.0", "2.0.0"), "'fileFormatVersion' is '2.0.0'; 1.0.0 is read"},
    {"NoRoot", swap("rootModelIdentifier", "x"), "the key 'rootModelIdentifier' is missing"},
    {"RootIsANumber", [](P& p) { p.manifest = R"({"fileFormatVersion":"1.0.0","rootModelIdentifier":7})"; },
     "'rootModelIdentifier' is 7"},
    {"RootIsNotThere", swap("rootModelIdentifier\": \"", "rootModelIdentifier\": \"0"),
     "which 'itemInfoEntries' does not hold"},
    {"RootWithALineFeed", swap("rootModelIdentifier\": \"", "rootModelIdentifier\": \"\\n"),
     "an identifier of printable letters"},
    {"NoItems", swap("itemInfoEntries", "x"), "the key 'itemInfoEntries' is missing"},
    {"NoPath", swap("\"path\": \"com.apple.CoreML/model.mlmodel\"", "\"x\": 1"), "path' is missing"},
    {"PathLeavesThePackage", swap("com.apple.CoreML/model.mlmodel", "../../model.mlmodel"),
     "leaves the package"},
    {"PathIsAbsolute", swap("com.apple.CoreML/model.mlmodel", "/etc/passwd"), "leaves the package"},
    {"PathOfNothing", swap("com.apple.CoreML/model.mlmodel", "other.mlmodel"), "cannot open"},
    {"PathOfAFolder", swap("com.apple.CoreML/model.mlmodel", "com.apple.CoreML"), "is a directory"},
};
HOSTILE_PACKAGES(CoremlHostileManifest, kManifest);

// The small package as a compiled model.
const std::string& small_mil() {
  static const std::string text = [] {
    const TemporaryFolder folder;
    const cm::Package read = cm::open_package(put_package(folder, small_files()));
    return cm::mil_text(read.program, &read.description);
  }();
  return text;
}

auto replaced(const std::string& from, const std::string& to) {
  return [=](P& p) {
    p.mil = small_mil();
    const std::size_t found = p.mil.find(from);
    if (found == p.mil.npos) throw std::logic_error("the text holds no " + from);
    p.mil.replace(found, from.size(), to);
  };
}
auto cut_behind(const std::string& text) {
  return [=](P& p) {
    p.mil = small_mil();
    p.mil.resize(p.mil.find(text) + text.size());
  };
}
auto metadata(const std::string& json) {
  return [=](P& p) {
    p.mil = small_mil();
    p.metadata = json;
  };
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

const std::string kAxes = "tensor<int32, [2]>([0, 1])";

const std::vector<HostilePackage> kText = {
    {"NoProgram", replaced("program", "module"), "line 1, column 1: program(1.0) is missing before 'module'"},
    {"VersionTwo", replaced("1.3", "2.0"), "version '2.0'; versions 1.0 to 1.3 are read"},
    {"EndsBehindTheVersion", cut_behind("program(1.3)"), "'{' is missing before the end of the text"},
    {"EndsInTheBuildInfo", cut_behind("buildInfo = "), "a type is missing before the end"},
    {"EndsInAText", cut_behind("\"coremltools-"), "a text in quotes does not end"},
    {"EndsInTheFunction", cut_behind("func main<"), "the opset of a function is missing"},
    {"EndsInABlock", cut_behind("read_state("),
     "'read_state': the name of an input is missing before the end"},
    {"EndsBehindTheOperations", cut_behind("} -> "), "'(' is missing before the end"},
    {"MoreBehindTheProgram", [](P& p) { p.mil = small_mil() + "x"; }, "text stands behind the program"},
    {"NoFunction", [](P& p) { p.mil = "program(1.3) {}"; }, "the program has no function"},
    {"AnotherWord", replaced("func main", "function main"), "func or } is missing before 'function'"},
    {"AnUnknownSign", replaced("read_state(", "read_state%("), "the sign '%' belongs to no MIL text"},
    {"NoSemicolon", replaced(";\n", "\n"), "';' is missing before"},
    {"NoOutputs", replaced("-> (y)", "-> y"), "'(' is missing before 'y'"},
    {"OutputThatNothingMakes", replaced("-> (y)", "-> (nothing)"),
     "uses 'nothing', which nothing before it makes"},
    {"OutputIsANumber", replaced("-> (y)", "-> (7)"), "the name of an output is missing before '7'"},
    {"UnknownName", replaced("y = x", "y = who"), "uses 'who', which nothing before it makes"},
    {"ResultTwice", replaced(" mode = const", " axes = const"), "makes 'axes', which was made before"},
    {"InputTwice", replaced("y = x", "x = x"), "has two inputs 'x'"},
    {"InputWithoutValue", replaced("y = x", "y = "), "a name or a constant is missing before ')'"},
    {"InputWithoutName", replaced("y = x", "= x"), "the name of an input is missing before '='"},
    {"AttributeWithoutValue", replaced("val = " + kAxes, "val = "), "a type is missing before ']'"},
    {"UnknownType", replaced(kAxes, "tensor<int33, [2]>([0, 1])"), "'int33' is no type of an element"},
    {"UnknownWordForAType", replaced(kAxes, "vector<int32>([0, 1])"), "a type is missing before 'vector'"},
    {"SizeIsAWord", replaced(kAxes, "tensor<int32, [two]>([0, 1])"), "a size is missing before 'two'"},
    {"SizeNegative", replaced(kAxes, "tensor<int32, [-2]>([0, 1])"), "a size between 0 and"},
    {"SizeHuge", replaced(kAxes, "tensor<int32, [99999999999999999999]>([0, 1])"), "a size between 0 and"},
    {"SizeLargerThanItsNumbers", replaced(kAxes, "tensor<int32, [4000000000]>([0, 1])"),
     "holds 8 bytes; 4000000000 elements"},
    {"ManySizes", replaced(kAxes, "tensor<int32, [" + repeated("1, ", 40) + "1]>([0])"),
     "a shape has more than 32 sizes"},
    {"TooFewNumbers", replaced(kAxes, "tensor<int32, [2]>([0])"),
     "a constant holds 4 bytes; 2 elements of int32 have 8"},
    {"TooManyNumbers", replaced(kAxes, "tensor<int32, [2]>([0, 1, 2])"), "a constant holds 12 bytes"},
    {"TooManyLists", replaced(kAxes, "tensor<int32, [2]>([[0], [1]])"), "more lists in lists than its shape"},
    {"UnevenLists", replaced(kAxes, "tensor<int32, [2, 1]>([[0], [1], [2]])"),
     "has 3 parts; its shape says 2"},
    {"NumberIsAWord", replaced(kAxes, "tensor<int32, [2]>([zero, 1])"),
     "a whole number is missing before 'zero'"},
    {"NumberTooLarge", replaced(kAxes, "tensor<int32, [2]>([2147483648, 1])"),
     "a whole number between -2147483648 and 2147483647"},
    {"NumberOfFourBitsTooLarge", replaced(kAxes, "tensor<int4, [2]>([8, 1])"),
     "a whole number between -8 and 7"},
    {"NumberNegative", replaced(kAxes, "tensor<uint8, [2]>([-1, 1])"), "a whole number between 0 and 255"},
    {"NumberWithAPoint", replaced(kAxes, "tensor<int32, [2]>([0.5, 1])"), "a whole number between"},
    {"RealIsBroken", replaced(kAxes, "tensor<fp32, [2]>([0x, 1])"), "a number is missing before '0x'"},
    {"RealOfTwoPoints", replaced(kAxes, "tensor<fp32, [2]>([1.2.3, 1])"),
     "a number is missing before '1.2.3'"},
    {"BooleanIsANumber", replaced(kAxes, "tensor<bool, [2]>([0, 1])"), "true or false is missing before '0'"},
    {"StringIsAWord", replaced("string(\"EXACT\")", "string(EXACT)"),
     "a text in quotes is missing before 'EXACT'"},
    {"UnknownEscape", replaced("\"EXACT\"", R"("\q")"), R"(holds the escape '\x5cq')"},
    {"EscapeIsCut", replaced("\"EXACT\"", R"("\x4")"), "which is not known"},
    {"TextIsNoUtf8", replaced("\"EXACT\"", "\"\xff\""), "a text is no UTF-8 at its byte 0"},
    {"TextOverALine", replaced("\"EXACT\"", "\"EX\nACT\""), "does not end on its line"},
    {"EightBitFloats", replaced(kAxes, "tensor<fp8e5m2, [1]>([1])"),
     "8-bit floats are read from weight files only"},
    {"TypesTooDeep", replaced(kAxes, repeated("list<", 100) + "int32"), "is nested deeper than 32"},
    {"ListOfTwoTypes", replaced(kAxes, "list<int32, int32>([0])"), "a length is missing before 'int32'"},
    {"DictionaryOfOneType", replaced(kAxes, "dict<int32>({})"), "dict names 1 types; it needs 2"},
    {"TupleTooLong", replaced(kAxes, "tuple<int32>((0, 1))"), "a tuple has more parts than its type"},
    {"TupleTooShort", replaced(kAxes, "tuple<int32, int32>((0))"), "a tuple has fewer parts than its type"},
    {"StateOfUnknownShape", replaced("state<tensor<fp16, [1, 16]>>", "state<tensor<fp16, [1, ?]>>"),
     "a state must be a tensor of a known shape"},
    {"ConstantOfAState", replaced(kAxes, "state<tensor<int32, [2]>>([0, 1])"), "a state is no constant"},
    {"BlobWithoutOffset", replaced(", offset = uint64(64)", ""), "BLOBFILE: offset is missing"},
    {"BlobOfAnotherOffset", replaced("uint64(64)", "uint64(128)"),
     "BLOBFILE: weights/weight.bin: record at byte 128: sentinel"},
    {"BlobLeavesThePackage", replaced("@model_path/weights", "@model_path/../weights"), "leaves the package"},
    {"BlobOfAnotherName", replaced("path = ", "name = "), "BLOBFILE takes path and offset, not 'name'"},
    {"BlobMissing", [](P& p) { replaced("x", "x")(p), p.weights.clear(); }, "BLOBFILE: "},
    {"BlocksTooDeep",
     replaced("tensor<int32, [2]> axes", repeated("cond()({", 40) + "tensor<int32, [2]> axes"),
     "blocks are nested deeper than 32"},
    {"MetadataIsNoJson", metadata("{"), "metadata.json: "},
    {"MetadataOfText", metadata(R"({"specificationVersion": "9"})"), "'specificationVersion' is '9'"},
    {"MetadataSchemaIsNoList", metadata(R"({"inputSchema": 7})"), "'inputSchema' must be a list"},
    {"MetadataShapeIsNoList", metadata(R"({"inputSchema": [{"name": "x", "shape": "{}"}]})"),
     "'inputSchema.shape' is '{}'; it must be a list"},
    {"MetadataShapeOfText", metadata(R"({"inputSchema": [{"name": "x", "shape": "[\"1\"]"}]})"),
     "it must be lists of whole numbers"},
};
HOSTILE_PACKAGES(CoremlHostileText, kText);

}  // namespace
}  // namespace kvtide::testing
