// Core ML packages under test: right ones pass, whole and layer by layer, and a rotation that is not the model's is named.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "kvtide/coreml.h"
#include "kvtide/validate.h"
#include "tests/engine/npy.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

std::string golden(const std::string& name) { return KVTIDE_GOLDENS "/folders/" + name; }

std::vector<TokenId> text() {
  auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ids.resize(18);
  return ids;
}

CoremlOptions alone() {
  CoremlOptions options;
  options.threads = 1;
  return options;
}

CoremlExport in_chunks(int chunks) {
  CoremlExport how;
  how.chunks = chunks;
  how.slots = 32;
  how.threads = 1;
  return how;
}

ValidationReport judged(const std::string& packages, const std::string& reference) {
  const auto tested = tested_packages(packages, alone());
  const auto plain = open_reference(reference, 1);
  ValidateOptions options = usual_package_gates(packages);
  options.free_tokens = 6;
  return validate(*tested, *plain, text(), options);
}

class ValidatePackages : public ::testing::TestWithParam<const char*> {};

TEST_P(ValidatePackages, PassWhenTheyAreRight) {
  const std::string model = golden(GetParam());
  const TemporaryFolder folder;
  for (const int chunks : {0, CoremlExport::kEveryLayer}) {
    const std::string path = folder / (chunks == 0 ? "x.mlpackage" : cat("chunks", chunks));
    export_coreml(model, path, in_chunks(chunks));
    const ValidationReport report = judged(path, model);
    EXPECT_TRUE(report.passed) << report_text(report);
    const bool layers = chunks == CoremlExport::kEveryLayer;
    for (const CheckResult& check : report.checks) {
      const bool of_state =
          check.name == "rows of the state" || check.name == "poison" || check.name == "taking tokens back";
      EXPECT_TRUE(!of_state || check.outcome == Outcome::passed) << check.name;
    }
    EXPECT_EQ(report.schedules.front().isolated.tokens > 0, layers) << chunks;
  }
}
INSTANTIATE_TEST_SUITE_P(Every, ValidatePackages,
                         ::testing::Values("llama-f32", "qwen2-bf16", "gemma3-f32", "gpt2-f32"));

// A copy of a model with another base of its rotation is exported, and compared with the model.
TEST(ValidatePackagesOf, AnotherRotationIsNamed) {
  const TemporaryFolder folder;
  const std::string other = folder / "other";
  fs::copy(golden("llama-f32"), other);
  std::string config = testing::contents_of(other + "/config.json");
  const std::size_t at = config.find("\"rope_theta\":");
  ASSERT_NE(at, std::string::npos) << config;
  const std::size_t digits = config.find_first_of("0123456789", at);
  config.replace(digits, config.find_first_not_of("0123456789.e+", digits) - digits, "40.0");
  std::ofstream(other + "/config.json") << config;
  const std::string layers = folder / "layers", whole = folder / "whole.mlpackage";
  export_coreml(other, layers, in_chunks(CoremlExport::kEveryLayer));
  export_coreml(other, whole, in_chunks(0));
  const ValidationReport found = judged(layers, golden("llama-f32"));
  ASSERT_FALSE(found.passed);
  EXPECT_NE(found.findings.front().cause.find("rope"), std::string::npos) << report_text(found);
  EXPECT_EQ(found.findings.front().layer, 0);
  EXPECT_FALSE(judged(whole, golden("llama-f32")).passed);
}

TEST(ValidatePackagesOf, AFolderOfOtherThingsIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(static_cast<void>(tested_packages(folder / "nothing.mlpackage", alone())), Error);
}

}  // namespace
}  // namespace kvtide
