// No false alarm: the engine's own models against a plain forward pass of the same weights.
#include <gtest/gtest.h>

#include "kvtide/validate.h"
#include "tests/engine/npy.h"
#include "validate/engine_model.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

std::vector<std::string> all_models() {
  std::vector<std::string> out;
  for (const std::string& model : testing::golden_models()) out.push_back(model + ".gguf");
  for (const char* name :
       {"gemma3-f32", "gpt2-f32", "gpt2-long-f16", "llama-f32", "mistral-f16-shards", "qwen2-bf16",
        "qwen3-i8", "zaya-f16", "zaya-i8", "smollm3-f32", "ministral3-f32", "phi3-f32", "olmo3-f32",
        "qwen3-moe-f32", "lfm2-f32", "lfm2-moe-f32", "qwen3-5-f32", "qwen3-5-moe-f32", "qwen3-next-f32"})
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
  options.key_type = options.value_type = ElementType::f32;
  options.threads = 1;
  for (const std::string& path : all_models()) {
    const ValidationReport report = report_on(path, options, 0.999999);
    EXPECT_TRUE(report.passed) << path << "\n" << report_text(report);
    for (std::size_t i = 1; i < report.schedules.size(); ++i)
      EXPECT_TRUE(report.schedules[i].same_bits) << path << report.schedules[i].name;
  }
}

TEST(ValidateEngine, EveryArchitecturePassesInTheArithmeticOfEveryDay) {
  SessionOptions options;
  options.threads = 1;
  for (const std::string& path : all_models()) {
    const ValidationReport report = report_on(path, options, 0.97);
    EXPECT_TRUE(report.passed) << path << "\n" << report_text(report);
  }
}

// What a reference says but for the near ties of its routers.
class Blunt final : public Reference {
 public:
  Blunt(Reference& inner, bool ties) : inner_(inner), ties_(ties) {}
  std::string name() const override { return inner_.name(); }
  Golden run(std::span<const TokenId> tokens) override {
    Golden golden = inner_.run(tokens);
    if (!ties_) golden.ties.clear();
    return golden;
  }

 private:
  Reference& inner_;
  bool ties_;
};

TEST(ValidateEngine, ARouterThatTakesTheOtherExpertOfANearTieIsNoFault_ButToldInTheReport) {
  auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ids.resize(31);
  const std::string path = KVTIDE_GOLDENS "/folders/zaya-i8";  // this text has one such place
  const Model model(path);
  SessionOptions options;
  options.threads = 1;
  options.kernels = "scalar";
  ThreadPool pool(1);
  PlainDecoder decoder(path, pool);
  EngineModel tested(model, options, 64);
  const ValidateOptions gates = usual_gates(model, options);
  for (const bool known : {true, false}) {
    Blunt reference(decoder, known);
    const ValidationReport report = validate(tested, reference, ids, gates);
    EXPECT_EQ(report.passed, known) << report_text(report);
    EXPECT_EQ(report_text(report).find("routers took the other expert of a near tie at 1 place") !=
                  std::string::npos,
              known)
        << report_text(report);
  }
}

TEST(ValidateEngine, GatesFollowTheArithmetic) {
  const auto gate = [](const char* folder, bool exact, ElementType rows) {
    const Model model(std::string(KVTIDE_GOLDENS "/folders/") + folder);
    SessionOptions options;
    options.exact = exact;
    options.key_type = options.value_type = rows;
    return usual_gates(model, options).gate;
  };
  for (const char* folder : {"llama-f32", "qwen2-bf16", "zaya-f16"}) {
    EXPECT_TRUE(has_float_weights(Model(std::string(KVTIDE_GOLDENS "/folders/") + folder))) << folder;
    EXPECT_EQ(gate(folder, true, ElementType::f16), 0.9999) << folder;
    EXPECT_EQ(gate(folder, false, ElementType::f16), 0.999) << folder;
    EXPECT_EQ(gate(folder, true, ElementType::q8_0), 0.97) << folder;
  }
  for (const char* folder : {"qwen3-i8", "zaya-i8"}) {
    EXPECT_FALSE(has_float_weights(Model(std::string(KVTIDE_GOLDENS "/folders/") + folder))) << folder;
    EXPECT_EQ(gate(folder, true, ElementType::f16), 0.9999) << folder;
    EXPECT_EQ(gate(folder, false, ElementType::f16), 0.97) << folder;
  }
}

// The gates of `kvtide validate`, with nothing asked for.
TEST(ValidateEngine, ModelsOfFloatsReachTheGateOfFloats_ExactlyAndInTheArithmeticOfEveryDay) {
  for (const std::string& path : all_models()) {
    const Model model(path);
    if (!has_float_weights(model)) continue;
    for (const bool exact : {true, false}) {
      SessionOptions options;
      options.threads = 1;
      options.exact = exact;
      const ValidationReport report = report_on(path, options, usual_gates(model, options).gate);
      EXPECT_TRUE(report.passed) << path << "\n" << report_text(report);
    }
  }
}

}  // namespace
}  // namespace kvtide
