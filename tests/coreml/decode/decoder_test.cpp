// Whole models are driven as their exporters meant it, and the split of a text into calls makes no difference.
#include "coreml/decode/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/text.h"
#include "coreml/decode/cache_layout.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/check_splits.h"
#include "coreml/decode/meta_yaml.h"
#include "coreml/write/package_writer.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_decoders.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::coreml {
namespace {

using namespace testing;
using kvtide::testing::TemporaryFolder;

const std::vector<TokenId> kText = {7, 3, 41, 12, 0, 47, 22, 9, 18};

std::string saved(const TemporaryFolder& folder, const std::string& name, const Package& package) {
  write_package(package, folder / name);
  return folder / name;
}

// Logits behind the last token when the text is read in pieces of these sizes.
std::vector<float> read_in(Decoder& decoder, const std::vector<std::size_t>& sizes, std::int64_t chunk = 0) {
  decoder.reset();
  std::vector<float> logits;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    logits = decoder.read(std::span(kText).subspan(at, size), chunk);
    at += size;
  }
  return logits;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto [least, most] = std::minmax_element(a.begin(), a.end());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.005f * (*most - *least)) << i;
}

std::string refusal_of_reading(const std::string& path) {
  const TokenId id = 0;
  try {
    open_decoder(path, {})->read(std::span(&id, 1));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& path) {
  try {
    open_decoder(path, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_same_in_all_splits(Decoder& decoder) {
  const auto one_by_one = read_in(decoder, std::vector<std::size_t>(kText.size(), 1));
  EXPECT_EQ(one_by_one.size(), 48u);
  EXPECT_EQ(decoder.position(), 9);
  expect_near(one_by_one, read_in(decoder, {5, 1, 3}));
  expect_near(one_by_one, read_in(decoder, {9}));
  expect_near(one_by_one, read_in(decoder, {9}, 4));
  EXPECT_EQ(decoder.state_bytes_copied(), 0);
}

TEST(Decoder, DrivesAModelWithACounter) {
  TemporaryFolder folder;
  const auto decoder = open_decoder(saved(folder, "zenz.mlpackage", zenz_sample({})), {});
  EXPECT_EQ(decoder->kind(), ContractKind::counted);
  EXPECT_EQ(decoder->slots(), 64);
  EXPECT_EQ(decoder->state_bytes(), 2 * 2 * 2 * 64 * 32 * 2 + 2);
  expect_same_in_all_splits(*decoder);
  EXPECT_EQ(decoder->parts().front().name, "zenz.mlpackage");
  EXPECT_EQ(decoder->parts().front().calls, decoder->calls());
}

TEST(Decoder, DrivesAModelWithACausalMask) {
  TemporaryFolder folder;
  const auto decoder = open_decoder(saved(folder, "llama.mlpackage", llama_sample({})), {});
  EXPECT_EQ(decoder->kind(), ContractKind::causal_mask);
  expect_same_in_all_splits(*decoder);
}

// Embeddings and head of a chunk of anemll_sample, and the file that names all three.
// The head gives logits in two parts, or chooses a token of each.
void save_anemll(const TemporaryFolder& folder, const SampleOptions& how, bool chooses = false) {
  SampleBuilder embeddings(how, "main");
  Feature ids;
  ids.name = "input_ids";
  ids.dtype = DataType::int32;
  ids.shape = {1, 1};
  ids.shapes = {{1, 1}, {1, how.most_tokens}};
  const auto id = embeddings.f.input(ids);
  const auto table = embeddings.random("embedding", {how.vocabulary, how.width}, 1.0f);
  embeddings.f.output(embeddings.op.gather(table, id), "hidden_states");
  saved(folder, "embeddings.mlpackage", make_package(std::move(embeddings.f)));
  saved(folder, "chunk.mlpackage", anemll_sample(how));
  SampleBuilder head(how, "main");
  const auto x = head.f.input("hidden_states", DataType::fp16, {1, 1, how.width});
  std::vector<std::string> tokens, best;
  for (const char* name : {"logits2", "logits1"}) {
    const auto logits = head.project(x, how.vocabulary / 2);
    if (!chooses) {
      head.f.output(logits, name);
      continue;
    }
    const auto part = [&](const char* type, NamedGiven axis, DataType kind) {
      return head.f.op(type, {{"x", logits}, std::move(axis), {"keep_dims", true}}, tensor(kind, {1, 1, 1}));
    };
    tokens.insert(tokens.begin(), part("reduce_argmax", {"axis", 2}, DataType::int32));
    best.insert(best.begin(), part("reduce_max", {"axes", {2}}, DataType::fp16));
  }
  if (chooses) head.f.output(head.op.concat(tokens, 2), "argmax_idx");
  if (chooses) head.f.output(head.op.concat(best, 2), "argmax_val");
  saved(folder, "head.mlpackage", make_package(std::move(head.f)));
  std::ofstream(folder / "meta.yaml") << "model_info:\n  name: sample  # of the tests\n  parameters:\n"
                                         "    num_chunks: 1\n    embeddings: embeddings.mlmodelc\n"
                                         "    lm_head: \"head.mlmodelc\"\n    ffn: chunk.mlmodelc\n";
}

TEST(Decoder, DrivesPackagesThatAMetaYamlNames) {
  TemporaryFolder folder;
  save_anemll(folder, {});
  const auto decoder = open_decoder(folder / "", {});
  EXPECT_EQ(decoder->kind(), ContractKind::positions);
  expect_same_in_all_splits(*decoder);
  read_in(*decoder, {9});
  const auto parts = decoder->parts();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].name, "head.mlpackage");
  EXPECT_LT(parts[2].calls, parts[1].calls);  // prefill needs no head
  EXPECT_EQ(open_decoder(folder / "meta.yaml", {})->slots(), 64);
}

TEST(Decoder, AHeadThatChoosesTokensChoosesTheLikeliest) {
  TemporaryFolder whole, chosen;
  save_anemll(whole, {});
  save_anemll(chosen, {}, true);
  EXPECT_NE(refusal_of_reading(chosen / "").find("vocab_size, or lm_head_chunk_sizes with 2 numbers"),
            std::string::npos);
  const auto logits = open_decoder(whole / "", {});
  EXPECT_FALSE(logits->chooses());
  for (const char* sizes :
       {"vocab_size: 48", "lm_head_chunk_sizes: [24, 24]", "lm_head_chunk_sizes: 24,24"}) {
    TemporaryFolder folder;
    save_anemll(folder, {}, true);
    std::ofstream(folder / "meta.yaml", std::ios::app) << "    " << sizes << "\n";
    const auto tokens = open_decoder(folder / "", {});
    EXPECT_TRUE(tokens->chooses());
    logits->reset();
    for (const TokenId id : kText) {
      const auto wanted = logits->read(std::span(&id, 1)), seen = tokens->read(std::span(&id, 1));
      ASSERT_EQ(seen.size(), wanted.size());
      const auto best = std::max_element(wanted.begin(), wanted.end()) - wanted.begin();
      EXPECT_EQ(std::max_element(seen.begin(), seen.end()) - seen.begin(), best) << sizes;
      EXPECT_EQ(seen[static_cast<std::size_t>(best)], wanted[static_cast<std::size_t>(best)]);
    }
  }
}

TEST(Decoder, TextsOverSeveralLinesAreNoKeys) {
  TemporaryFolder folder;
  save_anemll(folder, {});
  std::ofstream(folder / "meta.yaml", std::ios::app)
      << "description: |\n  Demonstrates running a model\n\n  embeddings: of another one\nlicense: none\n";
  EXPECT_EQ(open_decoder(folder / "", {})->slots(), 64);
  std::ofstream(folder / "meta.yaml", std::ios::app) << "monolithic_model: one.mlmodelc\n";
  EXPECT_NE(refusal_of_reading(folder / "").find("give 'one.mlmodelc' itself"), std::string::npos);
}

TEST(Decoder, RowsBehindTheTextAreNotReadAndTokensAreTakenBack) {
  TemporaryFolder folder;
  save_anemll(folder, {});
  const auto decoder = open_decoder(folder / "", {});
  decoder->read(std::span(kText).first(5));
  const auto wanted = decoder->read(std::span(kText).subspan(5, 2));
  decoder->read(std::span(kText).subspan(7, 2));
  decoder->truncate(5);
  decoder->fill_unread(0x4800);  // 8
  EXPECT_EQ(decoder->read(std::span(kText).subspan(5, 2)), wanted);
}

TEST(Decoder, PartsOfAVocabularyAreNotTooLargeTogether) {
  TemporaryFolder folder;
  save_anemll(folder, {}, true);
  std::ofstream(folder / "meta.yaml", std::ios::app) << "    lm_head_chunk_sizes: [16777216, 1]\n";
  EXPECT_NE(refusal_of_reading(folder / "").find("lm_head_chunk_sizes are 16777216 together at most"),
            std::string::npos);
}

// What was read goes on elsewhere, bit for bit, and half of it, too.
void expect_to_go_on(const std::string& path, std::int64_t layers) {
  const auto first = open_decoder(path, {}), second = open_decoder(path, {});
  first->read(std::span(kText).first(6));
  const auto rows = first->rows();
  ASSERT_EQ(std::ssize(rows), layers);
  EXPECT_EQ(rows[1].layer, 1);
  EXPECT_EQ(rows[0].keys.shape, (std::vector<std::int64_t>{1, 2, 6, 32}));
  EXPECT_NE(rows[0].keys.bytes, rows[0].values.bytes);
  EXPECT_NE(rows[0].keys.bytes, rows[1].keys.bytes);
  second->restore(first->tokens(), rows);
  for (std::size_t i = 0; i < first->sequence().states.size(); ++i)
    for (const std::string& name : first->sequence().states[i].names())
      EXPECT_EQ(first->sequence().states[i].read(name).bytes, second->sequence().states[i].read(name).bytes)
          << name;
  EXPECT_EQ(first->read(std::span(kText).subspan(6, 1)), second->read(std::span(kText).subspan(6, 1)));
  second->restore({kText.begin(), kText.begin() + 4}, rows);
  EXPECT_EQ(second->position(), 4);
  first->reset();
  expect_near(second->read(std::span(kText).subspan(4, 3)), first->read(std::span(kText).first(7)));
  auto fewer = rows;
  fewer.pop_back();
  EXPECT_THROW(second->restore({1, 2}, fewer), Error);
  EXPECT_EQ(second->position(), 7);
}

TEST(Decoder, TakesAndGivesRowsOfOtherExportersStates) {
  TemporaryFolder folder;
  expect_to_go_on(saved(folder, "zenz.mlpackage", zenz_sample({})), 2);
  expect_to_go_on(saved(folder, "llama.mlpackage", llama_sample({})), 2);
  save_anemll(folder, {});
  expect_to_go_on(folder / "", 2);
}

TEST(Decoder, TokensAreTakenBackAndACounterToo) {
  TemporaryFolder folder;
  CoremlModel model(saved(folder, "zenz.mlpackage", zenz_sample({})));
  const auto read = [&](CoremlState& state, std::size_t first, std::size_t end) {
    const auto ids = std::span(kText).subspan(first, end - first);
    const std::vector<float> ones(end, 1.0f);
    const CoremlFunction& function = model.function();
    std::map<std::string, CoremlArray> inputs;
    for (const CoremlFeature& input : function.inputs)
      inputs[input.name] = input.name.find("mask") == std::string::npos
                               ? ids_array({1, std::ssize(ids)}, ids)
                               : numbers_for(input, {1, static_cast<std::int64_t>(end)}, ones);
    return model.predict(inputs, &state).begin()->second.bytes;
  };
  CoremlState state = model.make_state();
  read(state, 0, 4);
  const CoremlState kept = state.fork();
  const auto wanted = read(state, 4, 5);
  read(state, 5, 6);
  CoremlState back = model.make_state_from(state, 4);
  EXPECT_EQ(read(back, 4, 5), wanted);
  EXPECT_NE(kept.read("pastLen").bytes, state.read("pastLen").bytes);
}

std::string layout_refusal(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& states) {
  std::vector<CoremlFeature> features;
  for (const auto& [name, shape] : states) {
    features.emplace_back();
    features.back().name = name;
    features.back().type = CoremlType::f16;
    features.back().shape = shape;
  }
  try {
    cache_layout_of(features, "x.mlpackage");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CacheLayout, OfStatesForEachLayerAndOfNone) {
  const std::vector<std::int64_t> one = {1, 2, 8, 4};
  std::vector<CoremlFeature> features;
  for (int i = 11; i >= 0; --i)
    for (const char* what : {"v_cache_", "k_cache_"}) {
      features.emplace_back();
      features.back().name = cat(what, i);
      features.back().type = CoremlType::f16;
      features.back().shape = one;
    }
  const CacheLayout layout = cache_layout_of(features, "x.mlpackage");
  ASSERT_EQ(layout.layers.size(), 12u);
  EXPECT_EQ(layout.layers[10].keys.state, "k_cache_10");
  EXPECT_EQ(layout.layers[10].values.state, "v_cache_10");
  EXPECT_EQ(layout.layers[0].slots, 8);
  EXPECT_EQ(layout_refusal({{"kv_cache", {4, 2, 8, 4}}}), "");
  EXPECT_NE(layout_refusal({{"kv_cache", {3, 2, 8, 4}}}).find("(kv_cache) do not say"), std::string::npos);
  EXPECT_NE(layout_refusal({{"kv_cache_local", {4, 2, 8, 4}}, {"kv_cache_global", {2, 2, 8, 4}}})
                .find("(kv_cache_local, kv_cache_global) do not say"),
            std::string::npos);
  EXPECT_NE(layout_refusal({{"keyCache", one}, {"valueCache", {1, 2, 9, 4}}}).find("do not say"),
            std::string::npos);
  EXPECT_NE(layout_refusal({{"pastLen", {1}}}).find("do not say"), std::string::npos);
}

TEST(Decoder, CallsTheFunctionsThatShiftBehindAWindow) {
  const auto logits_of = [](unsigned seed_of_rotate, std::size_t tokens, std::int64_t chunk) {
    TemporaryFolder folder;
    save_anemll(folder, {});
    std::filesystem::remove_all(folder / "chunk.mlpackage");
    saved(folder, "chunk.mlpackage", rotating_sample({}, 6, seed_of_rotate));
    const auto decoder = open_decoder(folder / "", {});
    auto logits = decoder->read(std::span(kText).first(tokens), chunk);
    // 4, then one by one up to the window's end, then 4 again if they go.
    EXPECT_EQ(decoder->calls(), chunk == 1    ? std::ssize(std::span(kText).first(tokens))
                                : tokens == 6 ? 3
                                              : 6);
    return logits;
  };
  EXPECT_EQ(logits_of(1, 6, 0), logits_of(2, 6, 0));
  EXPECT_NE(logits_of(1, 9, 0), logits_of(2, 9, 0));
  expect_near(logits_of(1, 9, 0), logits_of(1, 9, 1));
}

TEST(Decoder, RefusesWhatItCannotDriveAndSaysWhatThereIs) {
  TemporaryFolder folder;
  const std::string shard = refusal(saved(folder, "shard.mlpackage", shard_sample({})));
  EXPECT_NE(shard.find("its inputs are not ids and a mask; function main has inputs x fp16"), shard.npos)
      << shard;
  EXPECT_NE(shard.find("kvtide drives: ids [1, T]"), shard.npos) << shard;
  const std::string chunk = refusal(saved(folder, "chunk.mlpackage", anemll_sample({})));
  EXPECT_NE(chunk.find("say the folder that holds meta.yaml"), chunk.npos) << chunk;
  const std::string one = refusal(saved(folder, "one.mlpackage", zenz_sample({.fault = Fault::mask_of_one})));
  EXPECT_NE(one.find("'attention_mask' has one length"), one.npos) << one;
  EXPECT_NE(refusal(folder / "none").find("there is no such file"), std::string::npos);
}

TEST(Decoder, RefusesATextThatDoesNotFit) {
  TemporaryFolder folder;
  const auto decoder = open_decoder(saved(folder, "llama.mlpackage", llama_sample({.slots = 8})), {});
  try {
    decoder->read(kText);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::context_full);
  }
  EXPECT_EQ(decoder->position(), 0);
  EXPECT_EQ(decoder->read(std::span(kText).first(8)).size(), 48u);
  EXPECT_THROW(decoder->read({}), Error);
}

TEST(CheckSplits, FindsThatACallOfSeveralTokensDoesSomethingElse) {
  TemporaryFolder folder;
  int number = 0;
  const auto rules = [&](const Package& package) {
    std::set<std::string> found;
    for (const Finding& finding : check_splits(saved(folder, cat(++number, ".mlpackage"), package), {}))
      found.insert(finding.rule);
    return found;
  };
  const std::set<std::string> nothing;
  EXPECT_EQ(rules(zenz_sample({})), nothing);
  EXPECT_EQ(rules(llama_sample({})), nothing);
  EXPECT_EQ(rules(llama_sample({.slots = 7})), nothing);
  save_anemll(folder, {});
  EXPECT_TRUE(check_splits(folder / "", {}).empty());
  TemporaryFolder other;
  save_anemll(other, {.fault = Fault::position_is_constant});
  std::set<std::string> found;
  for (const Finding& finding : check_splits(other / "", {})) found.insert(finding.rule);
  EXPECT_EQ(found, (std::set<std::string>{"split-changes-logits", "split-changes-state"}));
  EXPECT_EQ(rules(zenz_sample({.fault = Fault::counter_not_written})), (std::set<std::string>{"call-fails"}));
  EXPECT_EQ(rules(shard_sample({})), (std::set<std::string>{"not-run"}));
}

TEST(MetaYaml, NamesItsMistakes) {
  TemporaryFolder folder;
  const auto says = [&](const std::string& text) -> std::string {
    std::ofstream(folder / "meta.yaml") << text;
    try {
      read_meta_yaml(folder / "meta.yaml");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(says("embeddings\n").find("line 1 is not `key: value`"), std::string::npos);
  EXPECT_NE(says("num_chunks: 1\n").find("the key 'embeddings' is missing"), std::string::npos);
  EXPECT_NE(says("embeddings: ../x\n").find("leaves the folder"), std::string::npos);
  EXPECT_NE(says("embeddings: x\n").find("which is not beside it"), std::string::npos);
  for (const char* name : {"e.mlpackage", "f_chunk_01of02.mlmodelc", "f_chunk_02of02.mlmodelc"})
    std::filesystem::create_directories(folder / name);
  const std::string good = "embeddings: e\nlm_head: e.mlmodelc\nffn: f_chunk_01of02.mlmodelc\nnum_chunks: ";
  EXPECT_NE(says(good + "x\n").find("must be a whole number"), std::string::npos);
  EXPECT_EQ(says(good + "2\n"), "");
  EXPECT_EQ(read_meta_yaml(folder / "meta.yaml").chunks.size(), 2u);
}

}  // namespace
}  // namespace kvtide::coreml
