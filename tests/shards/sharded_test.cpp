// Shards driven as one model, against a session on the same weights: every architecture, every chunking; and
// drafts, whose tokens are those of plain greedy decoding.
#include "shards/sharded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/suffix_draft.h"
#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "shards/sharded_generate.h"
#include "tests/engine/chain_model.h"
#include "tests/engine/logits.h"
#include "tests/engine/npy.h"
#include "tests/model/expect_refused.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

using testing::expect_refused;
using testing::SampleModel;
using testing::ShardSample;

// Logits of every position, read in calls of `columns` tokens.
std::vector<float> sharded_logits(ShardedModel& model, std::span<const TokenId> tokens, std::size_t columns) {
  std::vector<float> out;
  for (std::size_t at = 0; at < tokens.size(); at += columns) {
    const auto chunk = tokens.subspan(at, std::min(columns, tokens.size() - at));
    const auto rows = model.read(chunk, static_cast<std::int64_t>(chunk.size()));
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

std::vector<SampleModel> all_architectures() {
  std::vector<SampleModel> models;
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3"}) {
    SampleModel model;
    model.architecture = name;
    model.types = {DType::f16};
    model.layers = 3;
    if (model.architecture == "gemma3") {
      model.window = 20;
      model.layers = 7;
      model.own_head = false;
    }
    models.push_back(model);
  }
  return models;
}

TEST(Sharded, F16ShardsGiveTheBitsOfASessionOnTheSameWeights_ForAnyNumberOfColumns) {
  for (const SampleModel& sample : all_architectures()) {
    const testing::TemporaryFile file = testing::sample_file(sample);
    const Model model(file.path());
    const auto ids = testing::random_tokens(80, model.vocabulary(), 3);
    const std::vector<float> wanted = testing::all_logits(model, testing::exact_f16(), ids);
    ShardExport how = ShardSample::small();
    how.head_shards = 3;
    const ShardSample shards(file.path(), how);
    for (const Kernels* kernels : available_kernels()) {
      ShardedModel sharded(shards.path(), {.threads = 1, .kernels = kernels->isa});
      for (const std::size_t columns : {1u, 4u, 3u}) {
        EXPECT_EQ(sharded_logits(sharded, ids, columns), wanted)
            << sample.architecture << " " << kernels->isa << " " << columns;
        sharded.truncate(0);
      }
    }
    ShardedModel threads(shards.path(), {.threads = 3});
    EXPECT_EQ(sharded_logits(threads, ids, 4), wanted) << sample.architecture;
  }
}

TEST(Sharded, FoldersOfEveryArchitectureComeNearTheReference) {
  const auto ids = testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVTIDE_GOLDENS "/folders")) {
    if (!entry.is_directory()) continue;
    const std::string path = entry.path().string();
    if (std::filesystem::exists(path + "/model.gguf")) {  // of an architecture that is not split
      expect_refused(ErrorCode::unsupported, "are not split into shards",
                     [&] { const ShardSample refused(path); });
      continue;
    }
    const auto wanted = testing::read_npy<float>(path + "/logits.npy", "<f4");
    const ShardSample shards(path);
    ShardedModel sharded(shards.path(), {.threads = 1});
    const std::vector<float> got = sharded_logits(sharded, ids, 4);
    ASSERT_EQ(got.size(), wanted.size()) << path;
    double worst = 0.0, widest = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])));
      widest = std::max(widest, std::fabs(static_cast<double>(wanted[i])));
    }
    EXPECT_LE(worst, 2e-3 * widest) << path;  // weights and memory of 11 bits against 24
    EXPECT_EQ(sharded.tokenizer().encode("the tide comes in, and the"),
              Model(path).tokenizer().encode("the tide comes in, and the"));
    ++folders;
  }
  EXPECT_GE(folders, 9);
}

// Embeddings are often padded: the heads may choose ids that no token of tokenizer.json has.
TEST(Sharded, IdsWithoutATokenHaveNoText_AndStopNothing) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("model");
  std::filesystem::copy(KVTIDE_GOLDENS "/folders/llama-f32", path);
  const std::string file = path + "/tokenizer.json";
  std::string text;
  {
    std::ifstream in(file);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const std::string last : {",\"is\":63", ",[\"i\",\"s\"]"}) {
    ASSERT_NE(text.find(last), text.npos);
    text.erase(text.find(last), last.size());
  }
  std::ofstream(file) << text;
  const ShardSample shards(path);
  ShardedModel model(shards.path(), {.threads = 1});
  EXPECT_EQ(model.tokenizer().size(), 64u);
  EXPECT_EQ(model.tokenizer().piece(63), "");
  EXPECT_FALSE(model.tokenizer().ends_text(63));
  const TokenId unused = 63;
  EXPECT_EQ(model.read({&unused, 1}, 1).size(), 64u);
}

TEST(Sharded, EightBitChannelsAreNearerThanOneScaleForAll) {
  SampleModel sample;
  sample.types = {DType::f16};
  const testing::TemporaryFile file = testing::sample_file(sample);
  const Model model(file.path());
  const auto ids = testing::random_tokens(60, model.vocabulary(), 3);
  const std::vector<float> wanted = testing::all_logits(model, testing::exact_f16(), ids);
  const auto error = [&](ShardExport::Scales scales) {
    ShardExport how = ShardSample::small();
    how.type = ShardExport::Type::int8;
    how.scales = scales;
    const ShardSample shards(file.path(), how);
    ShardedModel sharded(shards.path(), {.threads = 1});
    const std::vector<float> got = sharded_logits(sharded, ids, 4);
    double apart = 0.0, size = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      apart += std::pow(static_cast<double>(got[i]) - static_cast<double>(wanted[i]), 2.0);
      size += std::pow(static_cast<double>(wanted[i]), 2.0);
    }
    return std::sqrt(apart / size);
  };
  const double channel = error(ShardExport::Scales::channel), tensor = error(ShardExport::Scales::tensor);
  EXPECT_LT(channel, 0.02);
  EXPECT_LT(channel, tensor);
  EXPECT_LT(tensor, 0.1);
}

TEST(Sharded, WhatIsRefusedLeavesTheShardsWhereTheyWere) {
  const ShardSample shards(SampleModel{});
  ShardedModel model(shards.path(), {.threads = 1});
  const auto ids = testing::random_tokens(96, 64, 3);
  sharded_logits(model, std::span(ids).first(94), 4);
  EXPECT_EQ(model.position(), 94);
  expect_refused(ErrorCode::context_full, "4 more tokens do not fit: 94 of 96 slots are in use",
                 [&] { model.read(std::span(ids).first(4), 1); });
  const TokenId bad = 64;
  expect_refused(ErrorCode::invalid_argument, "token id 64", [&] { model.read({&bad, 1}, 1); });
  expect_refused(ErrorCode::invalid_argument, "a call takes 1 to 4 tokens",
                 [&] { model.read(std::span(ids).first(5), 1); });
  expect_refused(ErrorCode::invalid_argument, "a call takes 1 to 4 tokens", [&] { model.read({}, 0); });
  EXPECT_EQ(model.position(), 94);
  const std::vector<float> last = sharded_logits(model, std::span(ids).subspan(94), 2);
  ShardedModel fresh(shards.path(), {.threads = 1});
  const std::vector<float> all = sharded_logits(fresh, ids, 4);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - static_cast<std::ptrdiff_t>(last.size())));
  expect_refused(ErrorCode::invalid_argument, "cannot truncate to 97", [&] { model.truncate(97); });
}

TEST(SuffixDraft, TheLongestSuffixThatStoodEarlierGoesOnAsItDidThere) {
  const auto draft = [](std::vector<TokenId> history, std::int64_t most) {
    return draft_by_suffix(history, most);
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(draft({1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, 3), (Ids{9, 2, 3}));  // 1 2 3 is longer than the newer 2 3
  EXPECT_EQ(draft({2, 3, 9, 2, 3, 8, 5, 2, 3}, 2), (Ids{8, 5}));        // as long: the newer
  EXPECT_EQ(draft({7, 7}, 3), (Ids{7, 7, 7}));                          // beyond its own end
  EXPECT_EQ(draft({4, 5, 4, 5, 4}, 4), (Ids{5, 4, 5, 4}));
  EXPECT_EQ(draft({1, 2, 3}, 3), Ids{});  // nothing came before
  EXPECT_EQ(draft({}, 3), Ids{});
  EXPECT_EQ(draft({1}, 3), Ids{});
  EXPECT_EQ(draft({1, 1}, 0), Ids{});
  // No more than eight tokens are compared: the newer of two matches of that length wins.
  Ids long_text = {0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 9, 1, 2, 3, 4, 5, 6, 7, 8, 30, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(draft(long_text, 1), (Ids{30}));
}

ShardedGenerated write(const std::string& path, std::span<const TokenId> prompt, bool draft,
                       std::int64_t tokens) {
  ShardedModel model(path, {.threads = 1});
  ShardedGenerateOptions options;
  options.draft = draft;
  options.max_tokens = tokens;
  options.stop_at_end = false;
  const ShardedGenerated out = generate_greedy(model, prompt, options);
  // Everything but the newest token has been read, and nothing else.
  EXPECT_EQ(model.position(), static_cast<Pos>(prompt.size() + out.tokens.size()) - 1);
  return out;
}

TEST(ShardedGenerate, DraftsWriteTheTokensOfPlainGreedyDecoding) {
  std::int64_t accepted = 0, rejected = 0;
  for (const SampleModel& sample : all_architectures())
    for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
      SampleModel other = sample;
      other.seed = seed;
      const testing::TemporaryFile file = testing::sample_file(other);
      const ShardSample shards(file.path());
      const auto prompt = testing::random_tokens(5 + seed, 64, seed);
      const ShardedGenerated plain = write(shards.path(), prompt, false, 60),
                             drafted = write(shards.path(), prompt, true, 60);
      EXPECT_EQ(plain.tokens.size(), 60u);
      EXPECT_EQ(plain.calls, 59);
      EXPECT_EQ(plain.drafted, 0);
      EXPECT_EQ(drafted.tokens, plain.tokens) << sample.architecture << " " << seed;
      EXPECT_EQ(drafted.calls + drafted.accepted, 59);
      accepted += drafted.accepted;
      rejected += drafted.drafted - drafted.accepted;
      // And a session writes them, too.
      const Model model(file.path());
      Session session(model, testing::exact_f16());
      session.read(prompt);
      GenerateOptions options;
      options.max_tokens = 60;
      options.sampler.temperature = 0.0f;
      const Generated wanted = generate(session, options);
      ASSERT_GT(wanted.tokens.size(), 0u);
      EXPECT_TRUE(std::equal(wanted.tokens.begin(), wanted.tokens.end(), plain.tokens.begin()))
          << sample.architecture;
    }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(rejected, 50);
}

enum : TokenId { kBos, kEos, kA, kB, kC, kD };

// a b c d a b c d ..., until something else is asked for.
std::string chain_folder(const testing::TemporaryFolder& folder, const testing::ChainModel& chain) {
  const testing::TemporaryFile file("chain.gguf", chain.bytes());
  const std::string path = folder.path("chain");
  export_shards(file.path(), path, ShardSample::small());
  return path;
}

TEST(ShardedGenerate, AnAnswerEndsWithTheTextAndWithItsLength_WithAndWithoutDrafts) {
  const testing::TemporaryFolder folder;
  const std::string path = chain_folder(
      folder, testing::ChainModel({"<s>", "</s>", "a", "b", "c", "d"}).chain({kA, kB, kC, kD, kEos}));
  for (const bool draft : {false, true}) {
    ShardedModel model(path, {.threads = 1});
    // The prompt has seen c follow b and d follow c; after d it guesses another a, and is wrong.
    const std::vector<TokenId> prompt = {kA, kB, kC, kD, kA};
    ShardedGenerateOptions options;
    options.draft = draft;
    const ShardedGenerated whole = generate_greedy(model, prompt, options);
    EXPECT_EQ(whole.tokens, (std::vector<TokenId>{kB, kC, kD}));
    EXPECT_EQ(whole.reason, StopReason::end_of_text);
    EXPECT_EQ(model.position(), 8);
    EXPECT_EQ(whole.accepted, draft ? 2 : 0);
    EXPECT_EQ(whole.drafted, draft ? 3 : 0);
    EXPECT_EQ(whole.calls, draft ? 1 : 3);

    model.truncate(0);
    options.max_tokens = 2;
    const ShardedGenerated two = generate_greedy(model, prompt, options);
    EXPECT_EQ(two.tokens, (std::vector<TokenId>{kB, kC}));
    EXPECT_EQ(two.reason, StopReason::max_tokens);

    model.truncate(0);
    options.max_tokens = 100;
    std::vector<TokenId> heard;
    options.on_token = [&](TokenId token) {
      heard.push_back(token);
      return heard.size() < 2;
    };
    const ShardedGenerated cut = generate_greedy(model, prompt, options);
    EXPECT_EQ(cut.tokens, (std::vector<TokenId>{kB, kC}));
    EXPECT_EQ(heard, cut.tokens);
    EXPECT_EQ(cut.reason, StopReason::cancelled);
  }
}

TEST(ShardedGenerate, FullSlotsEndTheAnswer_AndDraftsNeverPassTheEnd) {
  const testing::TemporaryFolder folder;
  const std::string path = chain_folder(
      folder, testing::ChainModel({"<s>", "</s>", "a", "b", "c", "d"}).chain({kA, kB, kC, kD, kA}));
  for (const bool draft : {false, true}) {
    ShardedModel model(path, {.threads = 1});
    ShardedGenerateOptions options;
    options.draft = draft;
    const std::vector<TokenId> prompt = {kA, kB, kC, kD, kA};
    const ShardedGenerated out = generate_greedy(model, prompt, options);
    EXPECT_EQ(out.reason, StopReason::context_full);
    EXPECT_EQ(model.position(), 96);
    ASSERT_EQ(out.tokens.size(), 92u);  // 91 were read, one more came out of the last
    for (std::size_t i = 0; i < out.tokens.size(); ++i)
      ASSERT_EQ(out.tokens[i], kA + static_cast<TokenId>((i + 1) % 4)) << i;
    if (draft) {
      EXPECT_LT(out.calls, 26);
    }
    const std::vector<TokenId> more(97, kA);
    expect_refused(ErrorCode::context_full, "the prompt has 97 tokens, but 0 of 96 slots are left",
                   [&] { generate_greedy(model, more, options); });
    expect_refused(ErrorCode::invalid_argument, "an empty prompt",
                   [&] { generate_greedy(model, {}, options); });
  }
}

}  // namespace
}  // namespace kvtide
