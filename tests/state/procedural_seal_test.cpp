// Sealing one block of one head against an implementation of its own in double precision
// (tools/make_procedural_goldens.py): tests/goldens/procedural/seal.golden.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/summarise.h"

namespace kvtide {
namespace {

struct Golden {
  std::string name;
  std::int64_t rows = 0, dim = 0, references = 0, exact = 0, summaries = 0;
  float scale = 0.0f;
  std::map<std::string, std::vector<float>> floats;           // i1 and f4
  std::map<std::string, std::vector<std::int64_t>> integers;  // i4

  BlockRows block() const {
    BlockRows out = padded_block(rows, dim);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < dim; ++i) {
        const auto to = static_cast<std::size_t>(row * out.padded_dim + i);
        const auto from = static_cast<std::size_t>(row * dim + i);
        out.keys[to] = floats.at("keys")[from] / 16.0f;
        out.values[to] = floats.at("values")[from] / 16.0f;
      }
    out.bias = floats.at("bias");
    return out;
  }
  ReferenceRows asked() const {
    ReferenceRows out;
    out.count = references;
    for (const float x : floats.at("queries")) out.queries.push_back(x / 16.0f);
    out.log_mass = floats.at("log_mass");
    return out;
  }
  SummaryRules rules(RowScore score = RowScore::mixed) const {
    return {exact, summaries, Summary::fit, score, scale, 0.75f};
  }
};

std::vector<Golden> read_goldens() {
  std::ifstream file(KVTIDE_GOLDENS "/procedural/seal.golden", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end = bytes.find("\nend\n");
  EXPECT_NE(end, std::string::npos) << "no golden file";
  if (end == std::string::npos) return {};
  std::istringstream header(bytes.substr(0, end));
  std::size_t at = end + 5;
  std::vector<Golden> out;
  for (std::string line; std::getline(header, line);) {
    std::istringstream words(line);
    std::string word, name, kind;
    words >> word;
    if (word == "case") {
      Golden& golden = out.emplace_back();
      words >> golden.name;
      std::map<std::string, std::int64_t*> wanted = {{"rows", &golden.rows},
                                                     {"dim", &golden.dim},
                                                     {"references", &golden.references},
                                                     {"exact", &golden.exact},
                                                     {"summaries", &golden.summaries}};
      while (words >> word) {
        const std::size_t sign = word.find('=');
        const std::string key = word.substr(0, sign), value = word.substr(sign + 1);
        if (key == "scale")
          golden.scale = std::stof(value);
        else
          *wanted.at(key) = std::stoll(value);
      }
    } else if (word == "array") {
      std::size_t count = 0;
      words >> name >> kind >> count;
      for (std::size_t i = 0; i < count; ++i) {
        if (kind == "i1") {
          out.back().floats[name].push_back(static_cast<signed char>(bytes.at(at)));
        } else {
          float real = 0.0f;
          std::int32_t integer = 0;
          if (at + 4 > bytes.size()) {
            ADD_FAILURE() << "the golden file is too short";
            return {};
          }
          std::memcpy(kind == "f4" ? static_cast<void*>(&real) : &integer, bytes.data() + at, 4);
          if (kind == "f4")
            out.back().floats[name].push_back(real);
          else
            out.back().integers[name].push_back(integer);
        }
        at += kind == "i1" ? 1 : 4;
      }
      out.back().floats[name], out.back().integers[name];  // empty ones exist, too
    }
  }
  EXPECT_EQ(at, bytes.size()) << "the golden file's length is wrong";
  return out;
}

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = read_goldens();
  return all;
}

// Relative to the largest number, as sums round.
::testing::AssertionResult near(const std::vector<float>& got, const std::vector<float>& wanted,
                                float tolerance) {
  if (got.size() != wanted.size())
    return ::testing::AssertionFailure() << got.size() << " values instead of " << wanted.size();
  float size = 0.0f;
  for (const float x : wanted) size = std::max(size, std::abs(x));
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - wanted[i]) <= tolerance * size))
      return ::testing::AssertionFailure()
             << "value " << i << " is " << got[i] << " instead of " << wanted[i];
  return ::testing::AssertionSuccess();
}

// The biases and values of the summaries, by row.
struct Summaries {
  std::vector<float> bias, values;
};
Summaries summaries_of(const Summarised& sealed, const BlockRows& block) {
  Summaries out;
  for (const KeptRow& kept : sealed.kept) {
    if (kept.value < 0) continue;
    out.bias.push_back(kept.bias);
    const auto from = sealed.values.begin() + kept.value * block.padded_dim;
    out.values.insert(out.values.end(), from, from + block.dim);
  }
  return out;
}

constexpr float kTolerance = 5e-5f;

TEST(ProceduralSeal, TheGoldensHoldEveryKindOfCase) {
  int rejected = 0, exact_only = 0, lowest = 0, highest = 0, biased = 0;
  for (const Golden& golden : goldens()) {
    rejected += golden.integers.at("rejected").at(0) != 0;
    exact_only += golden.summaries == 0;
    for (const float bias : golden.floats.at("kept_bias"))
      lowest += std::abs(bias + 3.0f) < 1e-4f, highest += std::abs(bias - 7.0f) < 1e-4f;
    for (const float bias : golden.floats.at("bias")) biased += bias != 0.0f;
  }
  EXPECT_EQ(goldens().size(), 10u);
  EXPECT_GE(rejected, 1);
  EXPECT_GE(exact_only, 1);
  EXPECT_GE(lowest, 1);
  EXPECT_GE(highest, 1);
  EXPECT_GE(biased, 10);
}

TEST(ProceduralSeal, KeepsTheRowsBiasesAndValuesOfAnIndependentImplementation) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens()) {
      SCOPED_TRACE(golden.name + " with " + kernels->dense.isa);
      Summariser summariser(kernels->dense);
      const BlockRows block = golden.block();
      const Summarised got =
          summariser.summarise(block, golden.floats.at("counts"), golden.asked(), golden.rules());
      std::vector<std::int64_t> rows;
      std::vector<float> bias, count, score;
      for (std::size_t i = 0; i < got.kept.size(); ++i) {
        const KeptRow& kept = got.kept[i];
        rows.push_back(kept.row);
        bias.push_back(kept.bias);
        count.push_back(kept.count);
        score.push_back(kept.value < 0 ? kept.score : 0.0f);
      }
      ASSERT_EQ(rows, golden.integers.at("kept"));
      for (std::size_t i = 0; i < got.kept.size(); ++i)
        EXPECT_EQ(got.kept[i].value < 0, golden.integers.at("kept_value")[i] < 0) << i;
      EXPECT_EQ(got.rejected, golden.integers.at("rejected").at(0) != 0);
      EXPECT_TRUE(near(bias, golden.floats.at("kept_bias"), kTolerance));
      EXPECT_TRUE(near(count, golden.floats.at("kept_count"), 0.0f));
      EXPECT_TRUE(near(score, golden.floats.at("kept_score"), kTolerance));
      EXPECT_TRUE(near(summaries_of(got, block).values, golden.floats.at("fitted"), kTolerance));
      EXPECT_NEAR(got.log_mass_error, golden.floats.at("log_mass_error").at(0), 1e-4f);
    }
}

TEST(ProceduralSeal, WithoutAFitSummariesAreTheLogOfTheirMassAndTheirMean) {
  // A fit is rejected where references contradict; elsewhere the same pivots have these.
  int compared = 0;
  for (const Golden& golden : goldens()) {
    if (golden.integers.at("rejected").at(0) == 0) continue;
    SCOPED_TRACE(golden.name);
    Summariser summariser(best_kernels().dense);
    const BlockRows block = golden.block();
    const Summarised got =
        summariser.summarise(block, golden.floats.at("counts"), golden.asked(), golden.rules());
    EXPECT_TRUE(near(summaries_of(got, block).bias, golden.floats.at("plain_bias"), kTolerance));
    EXPECT_TRUE(near(summaries_of(got, block).values, golden.floats.at("plain_values"), kTolerance));
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

TEST(ProceduralSeal, OrdersRowsAsTheIndependentImplementationDoes) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens())
      for (const auto& [score, name] :
           {std::pair(RowScore::mixed, "rank_mixed"), std::pair(RowScore::novelty, "rank_novelty"),
            std::pair(RowScore::value_norm, "rank_value_norm"),
            std::pair(RowScore::attention, "rank_attention")}) {
        SCOPED_TRACE(golden.name + " " + name + " with " + kernels->dense.isa);
        Summariser summariser(kernels->dense);
        std::vector<std::int64_t> got =
            summariser.ranking(golden.block(), golden.asked(), golden.rules(score));
        ASSERT_EQ(got.size(), static_cast<std::size_t>(golden.rows));
        got.resize(golden.integers.at(name).size());  // the rest could go either way
        EXPECT_EQ(got, golden.integers.at(name));
      }
}

TEST(ProceduralSeal, MergingKeepsTheMostAttendedRowsOfTheIndependentImplementation) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens()) {
      SCOPED_TRACE(golden.name + " with " + kernels->dense.isa);
      Summariser summariser(kernels->dense);
      EXPECT_EQ(summariser.most_attended(golden.block(), golden.asked(), golden.scale,
                                         golden.exact + golden.summaries),
                golden.integers.at("most_attended"));
    }
}

TEST(ProceduralSeal, LossesOfRowsAreThoseOfTheIndependentImplementation) {
  for (const Kernels* kernels : available_kernels())
    for (const Golden& golden : goldens()) {
      SCOPED_TRACE(golden.name + " with " + kernels->dense.isa);
      Summariser summariser(kernels->dense);
      EXPECT_TRUE(near(summariser.row_losses(golden.block(), golden.asked(), golden.scale),
                       golden.floats.at("losses"), kTolerance));
    }
}

}  // namespace
}  // namespace kvtide
