// The validator, when memory ends: a report, or one error; never a finding about a model that did nothing
// wrong.
#include <gtest/gtest.h>

#include <optional>

#include "kvtide/model.h"
#include "kvtide/validate.h"
#include "tests/faults/every_allocation.h"

namespace kvtide {
namespace {

TEST(AllocationFaults, AModelIsValidatedOrMemoryEnded) {
  const Model model(KVTIDE_GOLDENS "/models/llama-mha-untied.gguf", {.threads = 1});
  const SessionOptions options{.exact = true, .threads = 1};
  const std::vector<TokenId> text = validation_text(model, 12);
  const auto tested = tested_model(model, options);
  const auto reference = plain_reference(model, 1);
  ValidateOptions how = usual_gates(model, options);
  how.chunks = {1, 3};
  how.free_tokens = 2;
  std::optional<ValidationReport> report;
  std::string told;
  testing::Trial trial;
  trial.name = "validate";
  trial.run = [&] {
    report = validate(*tested, *reference, text, how);
    told = report_text(*report);
  };
  trial.end = [&] {
    EXPECT_TRUE(report->passed);
    return told;
  };
  trial.destroy = [&] {
    report.reset();
    told = std::string();
  };
  trial.trials = 25;
  testing::fail_every_allocation(trial);
}

}  // namespace
}  // namespace kvtide
