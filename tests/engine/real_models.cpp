// The two real models, where they have been fetched: against float32 goldens, and bit for bit over chunks and
// threads.
//
// Looks for smollm2.gguf and gemma3.gguf in the folder KVTIDE_MODELS, by default build/models; what is not
// there is skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "tests/engine/npy.h"

namespace kvtide {
namespace {

std::string model_path(const std::string& name) {
  const char* folder = std::getenv("KVTIDE_MODELS");
  return std::string(folder != nullptr ? folder : KVTIDE_BUILD_MODELS) + "/" + name + ".gguf";
}

class RealModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_path(GetParam())))
      GTEST_SKIP() << model_path(GetParam()) << " is not there; tools/fetch_model.py fetches it";
  }
  static std::string golden(const char* what) {
    return std::string(KVTIDE_GOLDENS "/models/") + GetParam() + "." + what + ".npy";
  }
};

INSTANTIATE_TEST_SUITE_P(Named, RealModel, ::testing::Values("smollm2", "gemma3"),
                         [](const auto& instance) { return std::string(instance.param); });

// Columns of a golden row: four best ids, their logits, logsumexp, minimum, maximum.
constexpr std::size_t kColumns = 11;

TEST_P(RealModel, AgreesWithAFloat32ForwardOfTheSameWeights_AtEveryPosition) {
  const Model model(model_path(GetParam()));
  const auto ids = testing::read_npy<TokenId>(golden("ids"), "<i4");
  const auto top = testing::read_npy<float>(golden("top"), "<f4");
  ASSERT_EQ(top.size(), ids.size() * kColumns);
  SessionOptions options;
  options.exact = true;
  options.key_type = options.value_type = ElementType::f32;
  options.context = 256;
  Session session(model, options);
  double worst = 0.0;  // share of the logit range
  int decided = 0;
  ReadOptions read;
  read.logits_from = 0;
  read.on_logits = [&](Pos pos, std::span<const float> row) {
    const float* wanted = &top[static_cast<std::size_t>(pos) * kColumns];
    const double range = static_cast<double>(wanted[10]) - static_cast<double>(wanted[9]);
    const auto compare = [&](double got, float want) {
      worst = std::max(worst, std::fabs(got - static_cast<double>(want)) / range);
    };
    for (int i = 0; i < 4; ++i)
      compare(static_cast<double>(row[static_cast<std::size_t>(wanted[i])]), wanted[4 + i]);
    const auto [lowest, highest] = std::minmax_element(row.begin(), row.end());
    double sum = 0.0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit - *highest));
    compare(std::log(sum) + static_cast<double>(*highest), wanted[8]);
    compare(static_cast<double>(*lowest), wanted[9]);
    compare(static_cast<double>(*highest), wanted[10]);
    if (static_cast<double>(wanted[4]) - static_cast<double>(wanted[5]) > 2e-3 * range) {
      EXPECT_EQ(highest - row.begin(), static_cast<std::ptrdiff_t>(wanted[0])) << "best token at " << pos;
      ++decided;
    }
  };
  session.read(ids, read);
  EXPECT_LE(worst, 2e-3);
  EXPECT_GT(decided, 200);
  RecordProperty("worst_share_of_range", std::to_string(worst));
}

// How a text is read: the first `large` tokens in chunks of `chunk`, the rest in reads of `small` tokens.
struct Reading {
  std::size_t large;
  std::int64_t chunk;
  std::size_t small;
  int threads;
};

// Hash of the logits of the last 16 tokens; every earlier token reaches them through the memory.
std::uint64_t hash_of(const Model& model, SessionOptions options, std::span<const TokenId> text,
                      const Reading& reading) {
  options.prefill_chunk = reading.chunk;
  options.threads = reading.threads;
  Session session(model, options);
  std::uint64_t hash = 0;
  ReadOptions read;
  read.logits_from = std::max<Pos>(0, static_cast<Pos>(text.size()) - 16);
  read.on_logits = [&](Pos, std::span<const float> row) { hash = hash_logits(row, hash); };
  read.need_logits = false;
  const std::size_t large = std::min(reading.large, text.size());
  session.read(text.first(large), read);
  for (std::size_t at = large; at < text.size(); at += reading.small)
    session.read(text.subspan(at, std::min(reading.small, text.size() - at)), read);
  return hash;
}

void expect_one_hash(const Model& model, const SessionOptions& options, std::span<const TokenId> text,
                     const std::vector<Reading>& readings) {
  const std::uint64_t wanted = hash_of(model, options, text, readings.front());
  EXPECT_NE(wanted, 0u);
  for (std::size_t i = 1; i < readings.size(); ++i)
    EXPECT_EQ(hash_of(model, options, text, readings[i]), wanted)
        << "large " << readings[i].large << " chunk " << readings[i].chunk << " small " << readings[i].small
        << " threads " << readings[i].threads << " exact " << options.exact;
}

TEST_P(RealModel, GivesTheSameBitsForEveryChunkAndThreadCount) {
  const Model model(model_path(GetParam()));
  const auto ids = testing::read_npy<TokenId>(golden("ids"), "<i4");
  SessionOptions options;
  options.context = 256;
  expect_one_hash(model, options, std::span(ids).first(200),
                  {{200, 512, 1, 2},
                   {200, 64, 1, 1},
                   {200, 16, 1, 3},
                   {180, 7, 1, 2},
                   {170, 100, 2, 4},
                   {160, 512, 1, 8}});
  options.exact = true;
  expect_one_hash(model, options, std::span(ids).first(120),
                  {{120, 512, 1, 2}, {120, 64, 1, 3}, {112, 16, 1, 1}, {100, 50, 7, 2}, {108, 512, 2, 8}});
}

TEST_P(RealModel, GivesTheSameBitsOnEveryKernelTable) {
  const Model model(model_path(GetParam()));
  const auto ids = testing::read_npy<TokenId>(golden("ids"), "<i4");
  for (const bool exact : {false, true}) {
    SessionOptions options;
    options.exact = exact;
    options.context = 64;
    std::optional<std::uint64_t> wanted;
    for (const Kernels* kernels : available_kernels()) {
      options.kernels = kernels->isa;
      const std::uint64_t hash = hash_of(model, options, std::span(ids).first(4), {3, 64, 1, 2});
      EXPECT_EQ(hash, wanted.value_or(hash)) << kernels->isa;
      wanted = hash;
    }
  }
}

TEST_P(RealModel, GivesTheSameBitsWhenItsWindowIsCrossed) {
  if (GetParam() != std::string("gemma3")) GTEST_SKIP() << "has no window";
  const Model model(model_path(GetParam()));
  std::ifstream file(KVTIDE_GOLDENS "/models/prose.txt");
  const std::string prose((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto ids = model.tokenizer().encode(prose);
  ASSERT_GE(ids.size(), 700u);
  SessionOptions options;
  options.context = 1024;
  // Chunks of 64 make a ring of 576 rows, which turns; chunks of 512 need no ring in 1,024 tokens.
  expect_one_hash(model, options, std::span(ids).first(700), {{700, 512, 1, 2}, {690, 64, 1, 2}});
}

}  // namespace
}  // namespace kvtide
