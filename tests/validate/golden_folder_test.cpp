#include "validate/golden_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kvtide/validate.h"
#include "tests/formats/temporary_folder.h"
#include "validate/engine_model.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

const std::string kFolder = KVTIDE_GOLDENS "/validate/gemma3-f32";
const std::string kModel = KVTIDE_GOLDENS "/folders/gemma3-f32";

TEST(GoldenFolder, ThePlainForwardPassAgreesWithTheArraysOfTransformers) {
  GoldenFolder folder(kFolder);
  ThreadPool pool(1);
  PlainDecoder plain(kModel, pool);
  const auto text = folder.text();
  ASSERT_TRUE(text);
  const Golden theirs = folder.run(*text), ours = plain.run(*text);
  ASSERT_EQ(theirs.hidden.size(), ours.hidden.size());
  for (std::size_t i = 0; i < theirs.hidden.size(); ++i)
    ASSERT_NEAR(theirs.hidden[i], ours.hidden[i], 2e-5) << i;
  ASSERT_EQ(theirs.rows.size(), ours.rows.size());
  for (std::size_t layer = 0; layer < theirs.rows.size(); ++layer)
    for (std::size_t i = 0; i < theirs.rows[layer].keys.size(); ++i) {
      ASSERT_NEAR(theirs.rows[layer].keys[i], ours.rows[layer].keys[i], 2e-5);
      ASSERT_NEAR(theirs.rows[layer].values[i], ours.rows[layer].values[i], 2e-5);
    }
  for (int layer = 0; layer < 3; ++layer) {
    const auto a = folder.frequencies(layer), b = plain.frequencies(layer);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6 * b[i]);
  }
}

TEST(GoldenFolder, TheEnginePassesAgainstIt) {
  GoldenFolder folder(kFolder);
  const Model model(kModel);
  SessionOptions session;
  session.exact = true;
  session.threads = 1;
  EngineModel tested(model, session, 32);
  const ValidationReport report = validate(tested, folder, *folder.text());
  EXPECT_TRUE(report.passed) << (report.findings.empty() ? "" : report.findings.front().what);
  EXPECT_EQ(report.reference, kFolder);
}

TEST(GoldenFolder, ABeginningOfTheTextHasTheFirstRowsOfEverything) {
  GoldenFolder folder(kFolder);
  const auto text = *folder.text();
  const Golden all = folder.run(text), some = folder.run(std::span(text).first(7));
  EXPECT_EQ(some.size(), 7);
  for (std::int64_t layer = 0; layer <= all.layers; ++layer)
    for (Pos t = 0; t < 7; ++t)
      EXPECT_TRUE(std::equal(some.stream(layer, t).begin(), some.stream(layer, t).end(),
                             all.stream(layer, t).begin()));
  EXPECT_EQ(some.rows[1].rows, 7);
  EXPECT_TRUE(std::equal(some.rows[1].key(0, 6).begin(), some.rows[1].key(0, 6).end(),
                         all.rows[1].key(0, 6).begin()));
}

TEST(GoldenFolder, RefusesAnotherText) {
  GoldenFolder folder(kFolder);
  auto text = *folder.text();
  text[3] += 1;
  EXPECT_THROW(folder.run(text), Error);
}

class Damaged : public ::testing::Test {
 protected:
  Damaged() { std::filesystem::copy(kFolder, path()); }
  std::string path() const { return folder_.path("golden"); }
  std::string refusal() const {
    try {
      GoldenFolder folder(path());
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Damaged, WithoutTokensItSaysWhatMakesSuchFolders) {
  std::filesystem::remove(path() + "/tokens.npy");
  EXPECT_NE(refusal().find("golden_arrays.py"), std::string::npos);
}

TEST_F(Damaged, RowsOfSomeLayersOnlyAreRefused) {
  std::filesystem::remove(path() + "/keys.1.npy");
  EXPECT_NE(refusal().find("every layer or for none"), std::string::npos);
}

TEST_F(Damaged, ArraysOfAnotherTextAreRefusedWithBothShapes) {
  std::filesystem::copy_file(KVTIDE_GOLDENS "/folders/gemma3-f32/logits.npy", path() + "/logits.npy",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(refusal().find("[80, 64]; [20, vocabulary] is expected"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace kvtide
