// A model with quantised weights and its twin, the same numbers stored as f32.
#include <gtest/gtest.h>

#include <cmath>

#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::SampleModel;

std::vector<float> logits_of(SampleModel sample, bool decoded, bool exact) {
  sample.decoded = decoded;
  const auto file = testing::sample_file(sample);
  const Model model(file.path());
  SessionOptions options;
  options.exact = exact;
  options.context = 64;
  options.key_type = options.value_type = ElementType::f32;
  return testing::all_logits(model, options, testing::random_tokens(30, model.vocabulary(), 8));
}

// llama regroups its query and key rows when it loads them: in panels, in the file's blocks and as biases
// alike.
TEST(Twins, GiveTheSameBitsInExactMode_ForEveryWeightType) {
  for (const auto& info : kDTypes)
    for (const char* architecture : {"llama", "qwen3"}) {
      SampleModel sample{.architecture = architecture, .layers = 1, .width = 256, .hidden = 256, .heads = 2};
      sample.head_dim = 128;
      sample.types = {info.dtype};
      EXPECT_TRUE(testing::same_bits(logits_of(sample, false, true), logits_of(sample, true, true)))
          << architecture << " " << info.name;
    }
}

// 8-bit activations round by about 1/254 of a block's largest; over a few hundred products that averages to
// well below a tenth of a logit's spread. Another arithmetic altogether would be off by the whole spread.
TEST(Twins, StayCloseWhenActivationsAreQuantised_ForEveryWeightTypeWithPanels) {
  for (const DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_k, DType::q6_k}) {
    SampleModel sample{.layers = 1, .width = 256, .hidden = 256, .heads = 2, .kv_heads = 1, .head_dim = 128};
    sample.types = {dtype};
    const auto got = logits_of(sample, false, false), wanted = logits_of(sample, true, true);
    double error = 0.0, spread = 0.0, mean = 0.0;
    for (const float logit : wanted) mean += static_cast<double>(logit) / static_cast<double>(wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(static_cast<double>(got[i]) - static_cast<double>(wanted[i]), 2);
      spread += std::pow(static_cast<double>(wanted[i]) - mean, 2);
    }
    EXPECT_LT(std::sqrt(error / spread), 0.05) << dtype_info(dtype).name;
    EXPECT_GT(error, 0.0) << dtype_info(dtype).name << ": the default mode did not quantise";
  }
}

}  // namespace
}  // namespace kvtide
