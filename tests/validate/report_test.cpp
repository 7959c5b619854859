#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kvtide/validate.h"
#include "validate/heat_map.h"
#include "validate/measure.h"
#include "validate/worst.h"

namespace kvtide {
namespace {

ValidationReport sample() {
  ValidationReport report;
  report.passed = false;
  report.model = "a <model>";
  report.reference = "golden";
  report.tokens = {1, 2, 3};
  report.gate = report.apart_gate = 0.97;
  ScheduleResult ones, twos;
  ones.name = "calls of 1";
  ones.calls = {1, 1, 1};
  ones.isolated = {
      2, 3, {1, 1, 1, 1, 0.99f, 1}, {0, 0, 0, 0, 0.5f, 0}, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}};
  twos.name = "calls of 2";
  twos.calls = {2};
  twos.isolated = {2, 2, {1, 0.9f, 1, 0.2f}, {0, 0.1f, 0, 2}, {1, 1, 1, 1}, {0, 0, 0, 0}};
  report.schedules = {ones, twos};
  report.checks = {{"isolated layers", Outcome::failed, "worst cosine 0.2"},
                   {"fork", Outcome::skipped, "cannot"}};
  Finding finding;
  finding.cause = "write_slot";
  finding.layer = 1;
  finding.token = 1;
  finding.calls = "calls of 2";
  finding.cosine = 0.2;
  finding.what = "slot 1 holds the rows of token 0";
  finding.advice = "look at the mask";
  report.findings = {finding};
  return report;
}

TEST(Report, TheWorstCellIsTheWorstOfAllSchedules) {
  const WorstTable table = worst_of(sample());
  ASSERT_EQ(table.cells.size(), 6u);
  EXPECT_TRUE(table.isolated);
  EXPECT_FLOAT_EQ(static_cast<float>(table.at(1, 1).cosine), 0.2f);
  EXPECT_EQ(table.at(1, 1).schedule, 1u);
  EXPECT_FLOAT_EQ(static_cast<float>(table.at(1, 1).max_abs), 2.0f);
  EXPECT_EQ(table.layers_worst_first(), (std::vector<int>{1, 0}));
  const auto worst = table.worst(2);
  EXPECT_EQ(worst[0].layer, 1);
  EXPECT_EQ(worst[1].layer, 0);
  EXPECT_EQ(worst[1].token, 1);
}

TEST(Report, TheTextBeginsWithTheVerdictAndTheCause) {
  const std::string text = report_text(sample());
  EXPECT_TRUE(text.starts_with("FAILED: a <model>, against golden, 3 tokens, gate 0.97\n")) << text;
  EXPECT_NE(text.find("1. write_slot (layer 1, token 1, calls of 2, cosine 0.200000)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("What to do: look at the mask"), std::string::npos) << text;
  EXPECT_LT(text.find("write_slot"), text.find("isolated layers"));
}

TEST(Report, ThePageStandsAloneAndEscapesNames) {
  const std::string page = report_html(sample());
  EXPECT_NE(page.find("a &lt;model&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<model>"), std::string::npos);
  for (const char* outside : {"http", "src=", "<link", "<script"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  // A cell for every layer and token, in the two orders.
  std::size_t cells = 0;
  for (std::size_t at = page.find("<rect"); at != page.npos; at = page.find("<rect", at + 1)) ++cells;
  EXPECT_EQ(cells, 2u * 6u);
}

TEST(Report, WithoutLayersThereIsNoMap) {
  ValidationReport report = sample();
  report.schedules.clear();
  const std::string page = report_html(report);
  EXPECT_EQ(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("Checks"), std::string::npos);
}

struct Parts {
  int red, green;
};

Parts parts_of(const std::string& colour) {
  return {std::stoi(colour.substr(1, 2), nullptr, 16), std::stoi(colour.substr(3, 2), nullptr, 16)};
}

TEST(HeatMap, TheGateSeparatesGreenFromRed) {
  for (const double gate : {0.97, 0.9999}) {
    const Parts right = parts_of(cosine_colour(1.0 - 0.99 * (1.0 - gate), gate)),
                wrong = parts_of(cosine_colour(1.0 - 1.01 * (1.0 - gate), gate));
    EXPECT_GT(right.green, right.red) << gate;
    EXPECT_GT(wrong.red, wrong.green) << gate;
    EXPECT_GT(parts_of(cosine_colour(0.5, gate)).green, parts_of(cosine_colour(-1.0, gate)).green);
  }
  EXPECT_EQ(cosine_colour(1.0, 0.97), "#005c42");
}

TEST(HeatMap, TheScaleTurnsFromGreenToYellowAtTheGate) {
  const std::string scale = colour_scale(0.999);  // a third of the way from 1 to 1 - 1e-9, in factors
  EXPECT_NE(scale.find("#d4eed9 66.7%"), std::string::npos) << scale;
  EXPECT_NE(scale.find("#ffe066 66.7%"), std::string::npos) << scale;
  EXPECT_NE(scale.find("left:66.7%"), std::string::npos) << scale;
  EXPECT_NE(scale.find("gate 0.999<"), std::string::npos) << scale;
}

TEST(Measure, ACosineIsTakenOffWhatF32CannotHold) {
  // The smallest step that f32 can make at 10,000 has no direction worth comparing; a step a thousand times
  // as large has.
  const std::vector<float> in = {1e4f, 1e4f}, one = {1e4f + 0.000977f, 1e4f},
                           other = {1e4f, 1e4f + 0.000977f};
  EXPECT_DOUBLE_EQ(likeness_of_change(in, one, in, other, 2.4e-7).cosine, 1.0);
  const std::vector<float> far = {1e4f + 0.977f, 1e4f}, away = {1e4f, 1e4f + 0.977f};
  EXPECT_LT(likeness_of_change(in, far, in, away, 2.4e-7).cosine, 0.001);
}

TEST(Measure, AVectorOfAnotherLengthIsNotAlike) {
  const std::vector<float> right = {3, 4}, twice = {6, 8}, turned = {4, -3};
  EXPECT_DOUBLE_EQ(likeness(twice, right).cosine, 1.0);
  EXPECT_FALSE(alike(likeness(twice, right), 0.97));
  EXPECT_TRUE(alike(likeness(right, right), 1.0));
  EXPECT_NEAR(likeness(turned, right).cosine, 0.0, 1e-12);
  EXPECT_DOUBLE_EQ(likeness(twice, right).max_abs, 4.0);
}

TEST(Measure, NotANumberIsNeverAlike) {
  const std::vector<float> right = {3, 4}, broken = {3, NAN};
  EXPECT_DOUBLE_EQ(likeness(broken, right).cosine, -1.0);
  EXPECT_FALSE(alike(likeness(broken, right), 0.0));
  EXPECT_FALSE(same_numbers(broken, right));
}

}  // namespace
}  // namespace kvtide
