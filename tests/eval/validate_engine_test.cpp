// No false alarm: the engine's own models against a plain forward pass of the same weights.
#include <gtest/gtest.h>

#include "eval/validate/engine_model.h"
#include "eval/validate/plain_decoder.h"
#include "kvtide/validate.h"
#include "tests/engine/npy.h"

namespace kvtide {
namespace {

std::string told(const ValidationReport& report) {
  std::string out;
  for (const CheckResult& check : report.checks)
    out += check.name + ": " + outcome_name(check.outcome) + ", " + check.detail + "\n";
  for (const Finding& f : report.findings) out += f.cause + ": " + f.what + "\n";
  return out;
}

std::vector<std::string> all_models() {
  std::vector<std::string> out;
  for (const std::string& model : testing::golden_models()) out.push_back(model + ".gguf");
  for (const char* name : {"gemma3-f32", "gpt2-f32", "gpt2-long-f16", "llama-f32", "mistral-f16-shards",
                           "qwen2-bf16", "qwen3-i8"})
    out.push_back(std::string(KVTIDE_GOLDENS "/folders/") + name);
  return out;
}

ValidationReport report_on(const std::string& path, const SessionOptions& options, double gate) {
  auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ids.resize(31);
  const Model model(path);
  ThreadPool pool(1);
  PlainDecoder reference(path, pool);
  EngineModel tested(model, options, 64);
  ValidateOptions validation;
  validation.gate = validation.apart_gate = validation.row_gate = gate;
  return validate(tested, reference, ids, validation);
}

TEST(ValidateEngine, EveryArchitecturePassesExactly) {
  SessionOptions options;
  options.exact = true;
  options.key_type = options.value_type = KvType::f32;
  options.threads = 1;
  for (const std::string& path : all_models()) {
    const ValidationReport report = report_on(path, options, 0.999999);
    EXPECT_TRUE(report.passed) << path << "\n" << told(report);
    for (std::size_t i = 1; i < report.schedules.size(); ++i)
      EXPECT_TRUE(report.schedules[i].same_bits) << path << report.schedules[i].name;
  }
}

TEST(ValidateEngine, EveryArchitecturePassesInTheArithmeticOfEveryDay) {
  SessionOptions options;
  options.threads = 1;
  for (const std::string& path : all_models()) {
    const ValidationReport report = report_on(path, options, 0.97);
    EXPECT_TRUE(report.passed) << path << "\n" << told(report);
  }
}

}  // namespace
}  // namespace kvtide
