// Faults in what layers without attention carry and compute: each must be found and named.
#include <gtest/gtest.h>

#include <string_view>

#include "kvtide/validate.h"
#include "tests/engine/npy.h"
#include "validate/engine_model.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

std::vector<TokenId> recurrent_text() {
  auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ids.resize(23);
  return ids;
}

std::string folder(std::string_view name) {
  return std::string(KVTIDE_GOLDENS "/folders/") + std::string(name);
}

// The engine, of whose tensors some are zeros again at every call.
class Forgetful final : public EngineModel {
 public:
  Forgetful(const Model& model, const SessionOptions& options, std::string_view what)
      : EngineModel(model, options, 64), what_(what) {}
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    KvState& kv = memory(state);
    for (std::size_t i = 0; kv.position() > 0 && i < kv.recurrent().count(); ++i)
      if (kv.recurrent().spec(i).name.ends_with(what_))
        kv.recurrent().write(i, std::vector<std::byte>(kv.recurrent().value(i).size()));
    return EngineModel::read(state, tokens, inputs);
  }

 private:
  std::string_view what_;
};

ValidationReport report_on_forgetting(std::string_view model_name, std::string_view what) {
  const Model model(folder(model_name));
  ThreadPool pool(1);
  PlainDecoder reference(folder(model_name), pool);
  SessionOptions options;
  options.exact = true;
  options.key_type = options.value_type = ElementType::f32;
  options.threads = 1;
  Forgetful tested(model, options, what);
  return validate(tested, reference, recurrent_text(), {});
}

TEST(RecurrenceFaults, WhatACallDoesNotHandOn_IsNamed) {
  struct Case {
    const char *model, *what, *cause;
  };
  for (const Case& c : {Case{"lfm2-f32", "conv_state", "history_dropped"},
                        Case{"qwen3-5-f32", "conv_state", "history_dropped"},
                        Case{"qwen3-5-f32", "recurrent_state", "recurrent_state_dropped"},
                        Case{"qwen3-next-f32", "state", "recurrent_state_dropped"},
                        Case{"mamba2-f32", "conv_state", "history_dropped"},
                        Case{"mamba2-f32", "recurrent_state", "recurrent_state_dropped"},
                        Case{"nemotron-h-f32", "recurrent_state", "recurrent_state_dropped"}}) {
    const ValidationReport report = report_on_forgetting(c.model, c.what);
    EXPECT_FALSE(report.passed);
    ASSERT_FALSE(report.findings.empty()) << c.model << c.what;
    EXPECT_EQ(report.findings.front().cause, c.cause) << c.model << " " << c.what << "\n"
                                                      << report_text(report);
    EXPECT_EQ(report.findings.front().layer, 0) << report_text(report);
  }
  EXPECT_TRUE(report_on_forgetting("qwen3-5-f32", "no tensor").passed);
}

// A function of the whole text that computes its layers with a slip and shows its logits only.
class Slipping final : public TestedModel {
 public:
  Slipping(const std::string& path, Slip slip) : decoder_(path, pool_), twist_{.slip = slip} {}
  TestedShape shape() const override {
    TestedShape shape;
    shape.name = "slipping";
    shape.vocab = 64;
    return shape;
  }
  std::unique_ptr<TestedState> make_state(std::int64_t) override { return std::make_unique<Text>(); }
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float>) override {
    auto& ids = static_cast<Text&>(state).ids;
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    Reading reading;
    const Twist* twist = &twist_;
    decoder_.twisted_logits(ids, {&twist, 1}, [&](std::size_t, std::vector<float> all) {
      reading.logits.assign(all.end() - static_cast<std::ptrdiff_t>(tokens.size() * 64), all.end());
    });
    return reading;
  }

 private:
  struct Text final : TestedState {
    std::vector<TokenId> ids;
  };
  ThreadPool pool_{1};
  PlainDecoder decoder_;
  Twist twist_;
};

TEST(RecurrenceFaults, WhatALayerComputesWrongly_IsNamedByLogitsAlone) {
  struct Case {
    const char* model;
    Slip slip;
    const char* cause;
  };
  for (const Case& c : {Case{"lfm2-f32", Slip::convolution_gates_swapped, "convolution"},
                        Case{"qwen3-5-f32", Slip::state_decayed_twice, "recurrent_decay"},
                        Case{"qwen3-5-f32", Slip::gate_before_norm, "recurrent_gate"},
                        Case{"qwen3-5-f32", Slip::delta_ignored, "delta_rule"},
                        Case{"qwen3-next-f32", Slip::state_read_before, "recurrent_order"},
                        Case{"mamba2-f32", Slip::state_decayed_twice, "recurrent_decay"},
                        Case{"mamba2-f32", Slip::gate_behind_norm, "recurrent_gate"},
                        Case{"mamba2-f32", Slip::groups_normed_together, "recurrent_norm"},
                        Case{"granite-hybrid-f32", Slip::skip_dropped, "recurrent_skip"},
                        Case{"granite-hybrid-f32", Slip::residual_unscaled, "residual_scale"},
                        Case{"nemotron-h-f32", Slip::time_bias_dropped, "recurrent_step"},
                        Case{"gpt-oss-f32", Slip::sinks_ignored, "attention_sinks"},
                        Case{"gpt-oss-f32", Slip::gate_unclamped, "activation"},
                        Case{"deepseek-f32", Slip::latent_norm_skipped, "norm_skipped"},
                        Case{"deepseek-f32", Slip::expert_groups_ignored, "expert_choice"}}) {
    ThreadPool pool(1);
    PlainDecoder reference(folder(c.model), pool);
    Slipping tested(folder(c.model), c.slip);
    ValidateOptions options;
    options.chunks = {1, 4};
    const ValidationReport report = validate(tested, reference, recurrent_text(), options);
    EXPECT_FALSE(report.passed) << c.cause;
    ASSERT_FALSE(report.findings.empty()) << c.model << c.cause;
    EXPECT_EQ(report.findings.front().cause, c.cause) << c.model << "\n" << report_text(report);
  }
}

}  // namespace
}  // namespace kvtide
