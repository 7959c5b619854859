// What a tracer makes constant, planted in a program that follows the position and the number of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "coreml/lint/lint.h"
#include "coreml/program/mil_printer.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::coreml {
namespace {

using kvtide::testing::TemporaryFolder;

constexpr const char* kGood = R"(program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 1, ?, 8]> x, tensor<int32, [1]> pos, state<tensor<fp16, [1, 1, 64, 8]>> kc, state<tensor<fp16, [1]>> n) [FlexibleShapeInformation = tuple<tuple<string, dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>((("DefaultShapes", {{"x", [1, 1, 3, 8]}}), ("RangeDims", {{"x", [[1, 1], [1, 1], [1, 4], [8, 8]]}})))] {
        tensor<int32, [4]> xs = shape(x = x)[name = string("xs")];
        int32 t = gather(x = xs, indices = int32(2), axis = int32(0), batch_dims = int32(0), validate_indices = bool(false))[name = string("t")];
        tensor<int32, [1]> end = add(x = pos, y = t)[name = string("end")];
        tensor<int32, [1]> none = const()[val = tensor<int32, [1]>([0]), name = string("none")];
        tensor<int32, [1]> two = const()[val = tensor<int32, [1]>([2]), name = string("two")];
        tensor<int32, [4]> b = concat(values = (none, none, pos, none), axis = int32(0), interleave = bool(false))[name = string("b")];
        tensor<int32, [4]> e = concat(values = (none, none, end, none), axis = int32(0), interleave = bool(false))[name = string("e")];
        tensor<fp16, [1, 1, 64, 8]> k0 = read_state(input = kc)[name = string("k0")];
        tensor<fp16, [1, 1, 64, 8]> k1 = slice_update(x = k0, update = x, begin = b, end = e, begin_mask = tensor<bool, [4]>([true, true, false, true]), end_mask = tensor<bool, [4]>([true, true, false, true]))[name = string("k1")];
        write_state(input = kc, data = k1)[name = string("write")];
        tensor<fp16, [1, 1, 64, 8]> k2 = read_state(input = kc)[name = string("k2")];
        tensor<fp16, [1]> n0 = read_state(input = n)[name = string("n0")];
        tensor<fp16, [1]> n1 = add(x = n0, y = fp16(1))[name = string("n1")];
        write_state(input = n, data = n1)[name = string("count")];
        tensor<fp16, [1, 1, ?, 64]> scores = matmul(x = x, y = k2, transpose_x = bool(false), transpose_y = bool(true))[name = string("scores")];
        tensor<int32, [?]> at = range_1d(start = int32(0), end = t, step = int32(1))[name = string("at")];
        tensor<int32, [?]> q = add(x = at, y = pos)[name = string("q")];
        tensor<int32, [?, 1]> rows = expand_dims(x = q, axes = tensor<int32, [1]>([1]))[name = string("rows")];
        tensor<int32, [64]> columns = range_1d(start = int32(0), end = int32(64), step = int32(1))[name = string("columns")];
        tensor<bool, [?, 64]> seen = less_equal(x = columns, y = rows)[name = string("seen")];
        tensor<fp16, [?, 64]> mask = select(cond = seen, a = fp16(0), b = fp16(-10000))[name = string("mask")];
        tensor<fp16, [1, 1, ?, 64]> masked = add(x = scores, y = mask)[name = string("masked")];
        tensor<fp16, [1, 1, ?, 64]> weights = softmax(x = masked, axis = int32(-1))[name = string("weights")];
        tensor<fp16, [1, 1, ?, 8]> mixed = matmul(x = weights, y = k2, transpose_x = bool(false), transpose_y = bool(false))[name = string("mixed")];
        tensor<fp16, [1, 1, ?, 8]> out = add(x = mixed, y = n1)[name = string("out")];
    } -> (out);
}
)";

using Edits = std::vector<std::pair<std::string, std::string>>;

std::vector<Finding> found_in(const Edits& edits) {
  std::string text = kGood;
  for (const auto& [from, to] : edits) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
  }
  const TemporaryFolder folder;
  std::ofstream(folder / "model.mil") << text;
  std::vector<Finding> found = lint(open_package(folder / "model.mil"));
  std::erase_if(found, [](const Finding& finding) { return finding.severity == Severity::hint; });
  return found;
}

void expect_one(const Edits& edits, const std::string& rule, const std::string& words) {
  const std::vector<Finding> found = found_in(edits);
  std::string all;
  for (const Finding& finding : found) all += finding.rule + ": " + finding.message + "\n";
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [&](const Finding& finding) {
                            return finding.rule == rule && finding.message.find(words) != std::string::npos;
                          }))
      << rule << ": " << words << "\nfound:\n"
      << all;
}

TEST(LintTraced, WhatFollowsTheCallIsLeftAlone) { EXPECT_TRUE(found_in({}).empty()); }

TEST(LintTraced, AWriteThatBeginsAtAConstantRow) {
  expect_one({{"(none, none, pos, none)", "(none, none, two, none)"}}, "position-baked-in", "from row 2 on");
}

TEST(LintTraced, OneRowOfACallOfSeveral) {
  expect_one(
      {{"tensor<int32, [1]> end = add(x = pos, y = t)",
        "tensor<int32, [1]> end = add(x = pos, y = int32(1))"},
       {"tensor<fp16, [1, 1, 64, 8]> k1 =",
        "tensor<fp16, [1, 1, 1, 8]> row = slice_by_index(x = x, begin = tensor<int32, [4]>([0, 0, -1, 0]), "
        "end = tensor<int32, [4]>([0, 0, 0, 0]), begin_mask = tensor<bool, [4]>([true, true, false, true]), "
        "end_mask = tensor<bool, [4]>([true, true, true, true]))[name = string(\"row\")];\n"
        "        tensor<fp16, [1, 1, 64, 8]> k1 ="},
       {"update = x,", "update = row,"}},
      "write-extent", "one row of the state");
}

TEST(LintTraced, AMaskThatIsTheSameForAllTokensOfACall) {
  expect_one({{"tensor<int32, [?, 1]> rows = expand_dims(x = q, ",
               "tensor<int32, [1, 1]> rows = expand_dims(x = end, "},
              {"tensor<bool, [?, 64]> seen", "tensor<bool, [1, 64]> seen"},
              {"tensor<fp16, [?, 64]> mask", "tensor<fp16, [1, 64]> mask"}},
             "mask-missing", "same for all tokens of a call");
}

TEST(LintTraced, AMaskThatKnowsNoPosition) {
  expect_one({{"q = add(x = at, y = pos)", "q = add(x = at, y = two)"}}, "position-baked-in",
             "the same in every call");
}

TEST(LintTraced, ANumberOfTokens) {
  expect_one(
      {{"tensor<fp16, [1, 1, ?, 8]> out = add(x = mixed, y = n1)",
        "tensor<fp16, [1, 1, 1, 8]> out = slice_by_index(x = mixed, begin = tensor<int32, [4]>([0, 0, 2, "
        "0]), "
        "end = tensor<int32, [4]>([0, 0, 3, 0]), begin_mask = tensor<bool, [4]>([true, true, false, true]), "
        "end_mask = tensor<bool, [4]>([true, true, false, true]))"}},
      "length-baked-in", "2 to 2 are taken");
  expect_one({{"tensor<fp16, [1, 1, ?, 8]> out = add(x = mixed, y = n1)",
               "tensor<fp16, [1, 3, 8]> out = reshape(x = mixed, shape = tensor<int32, [3]>([1, 3, 8]))"}},
             "length-baked-in", "become tensor<fp16, [1, 3, 8]>");
  expect_one(
      {{"tensor<fp16, [1, 1, ?, 8]> out = add(x = mixed, y = n1)",
        "tensor<fp16, [3, 8]> place = fill(shape = tensor<int32, [2]>([3, 8]), value = fp16(1))[name = "
        "string(\"place\")];\n        tensor<fp16, [1, 1, 3, 8]> out = add(x = mixed, y = place)"}},
      "length-baked-in", "meet 3 rows");
}

TEST(LintTraced, ACounterThatStands) {
  expect_one({{"write_state(input = n, data = n1)", "write_state(input = n, data = n0)"}},
             "state-never-written", "stays as it was made");
}

TEST(LintTraced, LinesAreThoseOfThePrintedProgram) {
  const TemporaryFolder folder;
  std::ofstream(folder / "model.mil") << kGood;
  Package package = open_package(folder / "model.mil");
  const std::string text = mil_text(package.program, &package.description);
  package.program.source = "model.mlmodel";  // as of a package, which has no lines of its own
  number_lines(package.program, &package.description);
  const Operation& last = package.program.functions[0].block.operations.back();
  std::size_t at = 0;
  for (std::size_t line = 1; line < last.line; ++line) at = text.find('\n', at) + 1;
  EXPECT_NE(text.substr(at, text.find('\n', at) - at).find("out = add("), std::string::npos);
}

}  // namespace
}  // namespace kvtide::coreml
