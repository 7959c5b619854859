// The attention of ZAYA1's layers as packages: what kvtide's own shards say, in every chunking; nothing pretends to be a whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/text.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/decoder.h"
#include "coreml/decode/masked_contract.h"
#include "coreml/decode/packages_manifest.h"
#include "coreml/lint/lint.h"
#include "kvtide/coreml.h"
#include "kvtide/error.h"
#include "kvtide/shard.h"
#include "tests/coreml/sample_numbers.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/expect_refused.h"

namespace kvtide::coreml {
namespace {

using kvtide::testing::expect_refused;
using kvtide::testing::TemporaryFolder;

const std::string kModel = KVTIDE_GOLDENS "/folders/zaya-f16";  // one layer slides over 16 positions
constexpr std::int64_t kSlots = 32, kTokens = 24;

CoremlArray floats(std::vector<std::int64_t> shape, const std::vector<float>& numbers) {
  return numbers_for({}, std::move(shape), numbers);
}

// The inputs of one call at positions first to first + t - 1, [.., T, ..] as both want them.
struct Call {
  std::vector<float> x, cos, sin, seen, written;
};

Call call_at(const MaskedContract& c, const std::vector<float>& text, std::int64_t first, std::int64_t t) {
  const auto& rope = c.ropes.at(0);
  Call call;
  call.x.resize(static_cast<std::size_t>(c.width * t));
  call.written.assign(static_cast<std::size_t>(kSlots * t), 0.0f);
  for (std::int64_t i = 0; i < t; ++i) {
    for (std::int64_t d = 0; d < c.width; ++d)
      call.x[static_cast<std::size_t>(d * t + i)] = text[static_cast<std::size_t>((first + i) * c.width + d)];
    for (const double frequency : rope.frequencies) {
      const double angle = frequency * static_cast<double>(first + i);
      call.cos.push_back(static_cast<float>(std::cos(angle) * rope.magnitude));
      call.sin.push_back(static_cast<float>(std::sin(angle) * rope.magnitude));
    }
    const auto window = c.masks.at(0).window.value_or(kSlots);
    for (std::int64_t slot = 0; slot < kSlots; ++slot)
      call.seen.push_back(slot <= first + i && slot > first + i - window ? 0.0f : -1e4f);
    call.written[static_cast<std::size_t>((first + i) * t + i)] = 1.0f;
  }
  return call;
}

std::vector<float> package_says(CoremlModel& package, CoremlState& state, const MaskedContract& c,
                                const Call& call, std::int64_t t) {
  const auto half = static_cast<std::int64_t>(c.ropes.at(0).frequencies.size());
  const auto out = package.predict({{c.tokens, floats({1, c.width, t, 1}, call.x)},
                                    {c.ropes.at(0).cos, floats({t, half}, call.cos)},
                                    {c.ropes.at(0).sin, floats({t, half}, call.sin)},
                                    {c.masks.at(0).input, floats({1, 1, t, kSlots}, call.seen)},
                                    {c.write_mask, floats({1, 1, kSlots, t}, call.written)}},
                                   &state);
  EXPECT_EQ(out.at(c.result).type, CoremlType::f16);
  return as_floats(out.at(c.result));
}

class AttentionShards : public ::testing::Test {
 protected:
  AttentionShards() {
    CoremlExport how;
    how.chunks = CoremlExport::kEveryLayer;
    how.slots = kSlots;
    how.threads = 1;
    export_coreml(kModel, folder_ / "packages", how);
    ShardExport shards;
    shards.slots = kSlots;
    export_shards(kModel, folder_ / "shards", shards);
    packages_ = read_packages(folder_ / "packages");
  }

  TemporaryFolder folder_;
  std::vector<std::string> packages_;
};

TEST_F(AttentionShards, SayWhatTheShardsSayInEveryChunking) {
  ASSERT_GE(packages_.size(), 2u);
  for (std::size_t layer = 0; layer < packages_.size(); ++layer) {
    CoremlModel package(packages_[layer]);
    const MaskedContract contract = masked_contract_of(package, packages_[layer]).value();
    EXPECT_TRUE(contract.attention_only);
    EXPECT_EQ(contract.carried, (std::vector<std::string>{"conv_state", "prev_value"}));
    const Shard shard = Shard::open(folder_ / "shards", cat("attention.", layer));
    std::mt19937 random(static_cast<unsigned>(layer));
    std::normal_distribution<float> normal;
    std::vector<float> text(static_cast<std::size_t>(contract.width * kTokens));
    for (float& number : text) number = normal(random);
    for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>(kTokens, 1),
                                                    {3, 1, 4, 2, 1, 4, 4, 1, 3, 1},
                                                    std::vector<std::int64_t>(6, 4)}) {
      CoremlState state = package.make_state();
      ShardState kept = shard.make_state();
      std::int64_t first = 0;
      for (const std::int64_t t : pieces) {
        const Call call = call_at(contract, text, first, t);
        const std::vector<float> wanted = shard.predict(ShardInputs{.x = call.x,
                                                                    .rope_cos = call.cos,
                                                                    .rope_sin = call.sin,
                                                                    .attention_mask = call.seen,
                                                                    .write_mask = call.written},
                                                        kept);
        const auto [least, most] = std::minmax_element(wanted.begin(), wanted.end());
        EXPECT_LE(farthest(wanted, package_says(package, state, contract, call, t)), 4e-3f * (*most - *least))
            << "layer " << layer << ", position " << first << ", " << t << " tokens";
        first += t;
      }
      for (const ShardState::Tensor& tensor : kept.tensors()) {
        if (tensor.name != "conv_state" && tensor.name != "prev_value") continue;
        EXPECT_EQ(state.read(tensor.name).type, CoremlType::f16);
        std::vector<float> numbers(tensor.bytes.size() / sizeof(float));
        std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
        EXPECT_LE(farthest(numbers, as_floats(state.read(tensor.name))), 0.01f) << tensor.name;
      }
    }
  }
}

TEST_F(AttentionShards, AreClean) {
  for (const std::string& path : packages_)
    for (const Finding& finding : lint(open_package(path), ""))
      EXPECT_EQ(finding.severity, Severity::hint) << path << ": " << finding.rule << ": " << finding.message;
}

TEST_F(AttentionShards, AreNoModelThatWritesText) {
  expect_refused(ErrorCode::unsupported, "holds the attention of a layer alone",
                 [&] { open_decoder(folder_ / "packages", {}); });
}

}  // namespace
}  // namespace kvtide::coreml
