// What is exported runs by its contract and says what a session says; weights become smaller in known ways; a path that holds
// something is left alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "coreml/decode/decoder.h"
#include "coreml/decode/masked_contract.h"
#include "coreml/decode/packages_manifest.h"
#include "coreml/decode/sequence_file.h"
#include "coreml/lint/lint.h"
#include "coreml/program/package.h"
#include "coreml/write/package_writer.h"
#include "kvtide/coreml.h"
#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/coreml/sample_numbers.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide::coreml {
namespace {

namespace fs = std::filesystem;
using kvtide::testing::expect_refused;
using kvtide::testing::SampleModel;
using kvtide::testing::TemporaryFolder;

// Longer than the windows of Gemma 3 and Qwen 2.
const std::vector<TokenId> kExportedText = {7,  3, 41, 12, 5,  47, 22, 9, 18, 2,
                                            31, 6, 44, 8,  13, 40, 21, 3, 19, 28};

CoremlExport small(int chunks = 0) {
  CoremlExport how;
  how.chunks = chunks;
  how.slots = 32;
  how.threads = 1;
  return how;
}

std::vector<float> session_logits(const std::string& model, const std::vector<TokenId>& text) {
  const Model loaded(model);
  SessionOptions options;
  options.exact = true;
  Session session(loaded, options);
  session.read(text);
  const auto logits = session.logits();
  return {logits.begin(), logits.end()};
}

float range_of(const std::vector<float>& numbers) {
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  return *most - *least;
}

// Logits behind the text, read in pieces of these sizes.
std::vector<float> decoder_logits(Decoder& decoder, std::span<const TokenId> text, std::int64_t chunk) {
  decoder.reset();
  return decoder.read(text, chunk);
}

void expect_clean(const std::string& path) {
  for (const Finding& finding : lint(open_package(path), ""))
    EXPECT_EQ(finding.severity, Severity::hint) << path << ": " << finding.rule << ": " << finding.message;
}

class Families : public ::testing::TestWithParam<const char*> {};

TEST_P(Families, SayWhatASessionSaysInOnePackageAndInSeveral) {
  const std::string model = cat(KVTIDE_GOLDENS, "/folders/", GetParam());
  const std::vector<float> wanted = session_logits(model, kExportedText);
  TemporaryFolder folder;
  for (const int chunks : {0, CoremlExport::kEveryLayer}) {
    const std::string path = folder / (chunks == 0 ? "whole.mlpackage" : "layers");
    export_coreml(model, path, small(chunks));
    const auto decoder = open_decoder(path, {});
    EXPECT_EQ(decoder->kind(), ContractKind::masks);
    EXPECT_EQ(decoder->slots(), 32);
    for (const std::int64_t chunk : {1, 3, 0})
      EXPECT_LE(farthest(wanted, decoder_logits(*decoder, kExportedText, chunk)), 4e-3f * range_of(wanted))
          << path << ", " << chunk;
    if (chunks == 0)
      expect_clean(path);
    else
      for (const std::string& part : read_packages(path)) expect_clean(part);
  }
}

INSTANTIATE_TEST_SUITE_P(Export, Families,
                         ::testing::Values("llama-f32", "qwen2-bf16", "qwen3-i8", "gemma3-f32", "gpt2-f32"));

std::string sample_path(const TemporaryFolder& folder) {
  const auto bytes = kvtide::testing::sample_model(SampleModel{}).build().bytes;
  std::ofstream(folder / "model.gguf", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return folder / "model.gguf";
}

TEST(Export, WritesWeightsInFewerBits) {
  TemporaryFolder folder;
  const std::string model = sample_path(folder);
  const std::vector<float> wanted = session_logits(model, kExportedText);
  const std::tuple<CoremlWeights, const char*, float> ways[] = {{CoremlWeights::f16, "fp16", 4e-3f},
                                                                {CoremlWeights::int8_channel, "int8", 0.05f},
                                                                {CoremlWeights::int8_tensor, "int8", 0.05f},
                                                                {CoremlWeights::int4, "int4", 0.5f}};
  for (const auto& [weights, type, most] : ways) {
    CoremlExport how = small();
    how.weights = weights;
    how.replace = true;
    const std::string path = folder / "m.mlpackage";
    export_coreml(model, path, how);
    EXPECT_NE(inspect_coreml(path).find(cat("\"", type, "\"")), std::string::npos) << type;
    EXPECT_LE(farthest(wanted, open_decoder(path, {})->read(kExportedText)), most * range_of(wanted)) << type;
  }
}

TEST(Export, TakesListedSizesAndOneToken) {
  TemporaryFolder folder;
  const std::string model = sample_path(folder);
  CoremlExport how = small(2);
  how.token_sizes = {8, 1};
  export_coreml(model, folder / "listed", how);
  const auto decoder = open_decoder(folder / "listed", {});
  decoder->read(kExportedText);
  EXPECT_EQ(decoder->calls(), 2 + 4);
  EXPECT_EQ(decoder->parts().size(), 4u);
  EXPECT_EQ(decoder->parts().front().name, "embedding.mlpackage");
  how = small();
  how.most_tokens = 1;
  export_coreml(model, folder / "one.mlpackage", how);
  const CoremlModel one(folder / "one.mlpackage");
  EXPECT_EQ(one.function().inputs.front().shape, (std::vector<std::int64_t>{1, 1}));
  EXPECT_TRUE(one.function().inputs.front().ranges.empty());
}

TEST(Export, SaysWhatItIs) {
  TemporaryFolder folder;
  export_coreml(sample_path(folder), folder / "m.mlpackage", small());
  const CoremlModel model(folder / "m.mlpackage");
  const auto& metadata = model.metadata();
  const auto value = [&](const std::string& key) -> std::string {
    for (const auto& [name, text] : metadata)
      if (name == key) return text;
    return "";
  };
  EXPECT_EQ(value("context_length"), "4096");
  EXPECT_EQ(value("bos_token_id"), "0");
  EXPECT_EQ(value("eos_token_ids"), "1");
  EXPECT_EQ(model.function().states.size(), 4u);
  EXPECT_EQ(model.function().states.front().name, "k_cache_0");
  EXPECT_EQ(model.function().states.front().shape, (std::vector<std::int64_t>{1, 2, 32, 16}));
}

TEST(Export, LeavesAloneWhatIsThere) {
  TemporaryFolder folder;
  const std::string model = sample_path(folder);
  const std::string path = folder / "m.mlpackage";
  export_coreml(model, path, small());
  expect_refused(ErrorCode::invalid_argument, "is there already",
                 [&] { export_coreml(model, path, small()); });
  fs::create_directory(folder / "mine");
  std::ofstream(folder / "mine/letter.txt") << "dear";
  CoremlExport how = small();
  how.replace = true;
  expect_refused(ErrorCode::invalid_argument, "is not replaced",
                 [&] { export_coreml(model, folder / "mine", how); });
  how.slots = 16;
  export_coreml(model, path, how);
  EXPECT_EQ(open_decoder(path, {})->slots(), 16);
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder / "")) ++entries;
  EXPECT_EQ(entries, 3u);
}

TEST(Export, RefusesWhatItCannotWrite) {
  TemporaryFolder folder;
  const std::string model = sample_path(folder);
  const auto refused = [&](CoremlExport how, const std::string& says) {
    expect_refused(ErrorCode::invalid_argument, says, [&] { export_coreml(model, folder / "none", how); });
    EXPECT_FALSE(fs::exists(folder / "none"));
    EXPECT_FALSE(fs::exists(folder / "none.incomplete"));
  };
  refused(small(3), "cannot be split into 3 chunks");
  CoremlExport how = small();
  how.token_sizes = {4};
  refused(how, "they begin with 1");
  how = small();
  how.slots = -1;
  refused(how, "a state has 1 to");
  const std::string gpt2 = cat(KVTIDE_GOLDENS, "/folders/gpt2-f32");
  how.slots = 1 << 20;
  expect_refused(ErrorCode::invalid_argument, "positions that this model has learned",
                 [&] { export_coreml(gpt2, folder / "none", how); });
  expect_refused(ErrorCode::unsupported, "a package for each layer (--per-layer)",
                 [&] { export_coreml(cat(KVTIDE_GOLDENS, "/folders/zaya-f16"), folder / "none", small()); });
  how = small();
  how.on_package = [](const std::string&) { throw Error(ErrorCode::cancelled, "stop"); };
  expect_refused(ErrorCode::cancelled, "stop", [&] { export_coreml(model, folder / "none", how); });
  EXPECT_FALSE(fs::exists(folder / "none.incomplete"));
}

TEST(Export, ASequenceGoesOnInPackagesWithMoreAndFewerSlots) {
  TemporaryFolder folder;
  const std::string model = sample_path(folder);
  const auto decoder_of = [&](const std::string& name, int chunks, std::int64_t slots) {
    CoremlExport how = small(chunks);
    how.slots = slots;
    export_coreml(model, folder / name, how);
    return open_decoder(folder / name, {});
  };
  const auto small_one = decoder_of("small.mlpackage", 0, 24), large = decoder_of("large", 2, 40),
             same = decoder_of("same.mlpackage", 0, 24);
  small_one->read(std::span(kExportedText).first(10));
  save_sequence(*small_one, folder / "ten.safetensors");
  const std::vector<TokenId> last = load_sequence(*large, folder / "ten.safetensors", 1);
  EXPECT_EQ(last, (std::vector<TokenId>{kExportedText[9]}));
  EXPECT_EQ(large->position(), 9);
  large->read(last);
  large->read(std::span(kExportedText).subspan(10, 5));
  same->restore(large->tokens(), large->rows());
  const std::vector<float> there_and_back = same->read(std::span(kExportedText).subspan(15)),
                           at_once = small_one->read(std::span(kExportedText).subspan(10));
  EXPECT_EQ(same->position(), 20);
  EXPECT_LE(farthest(at_once, there_and_back), 4e-3f * range_of(at_once));
  const auto tiny = decoder_of("tiny.mlpackage", 0, 8);
  expect_refused(ErrorCode::context_full, "do not fit into 8",
                 [&] { load_sequence(*tiny, folder / "ten.safetensors", 1); });
  EXPECT_EQ(tiny->position(), 0);
  auto rows = large->rows();
  rows.pop_back();
  expect_refused(ErrorCode::invalid_argument, "no rows of layer 1", [&] { same->restore({1, 2}, rows); });
  EXPECT_EQ(same->position(), 20);
}

TEST(Export, AContractThatItsPackageDoesNotKeepIsRefused) {
  TemporaryFolder folder;
  export_coreml(sample_path(folder), folder / "m.mlpackage", small());
  const Package package = open_package(folder / "m.mlpackage");
  int number = 0;
  const auto says = [&](const std::string& from, const std::string& to, const std::string& why,
                        ErrorCode code = ErrorCode::bad_format) {
    Package other = package;
    for (auto& [key, text] : other.description.metadata)
      if (key == kContractKey) {
        const auto at = text.find(from);
        ASSERT_NE(at, text.npos) << text;
        text.replace(at, from.size(), to);
      }
    const std::string path = folder / cat(++number, ".mlpackage");
    write_package(other, path);
    expect_refused(code, why, [&] { open_decoder(path, {}); });
  };
  says("{", "[", "co.kvtide.contract");
  says("\"version\":1", "\"version\":2", "a later version", ErrorCode::unsupported);
  says("\"slots\":32", "\"slots\":33", "names 'write_mask', which the package does not have");
  says("\"slots\":32", "\"slots\":-1", "slots");
  says("\"k_cache_0\"", "\"k_cache\"", "names 'k_cache'");
  says("\"write_mask\":\"write_mask\",", "", "names 4 inputs");
  says("\"input_ids\"", "\"attention_mask\"", "names 'attention_mask'");
  says("\"layers\":2", "\"layers\":3", "ends behind layer 2 of 3");
  says("\"behind_layer\":2", "\"behind_layer\":1", "layer");
}

TEST(Export, FoldersWhosePackagesDoNotFitAreRefused) {
  TemporaryFolder folder;
  export_coreml(sample_path(folder), folder / "parts", small(2));
  const auto says = [&](const std::vector<std::string>& names, const std::string& why) {
    std::ofstream(folder / "parts/manifest.json") << packages_text(names);
    expect_refused(ErrorCode::bad_format, why, [&] { open_decoder(folder / "parts", {}); });
  };
  says({"layers_0.mlpackage", "head.mlpackage"}, "comes first and does not take ids");
  says({"embedding.mlpackage", "layers_1.mlpackage", "head.mlpackage"}, "begins with layer 1");
  says({"embedding.mlpackage", "layers_0.mlpackage"}, "comes last and gives no logits");
  says({"embedding.mlpackage", "layers_0.mlpackage", "head.mlpackage"}, "begins with layer 2");
  says({"../x"}, "is no name of a package");
  says({}, "names 0 packages");
}

// The arrays of one call of one token, by the contract: slot `at` is written, and it and all before it are seen.
std::map<std::string, CoremlArray> call_of(const CoremlModel& model, TokenId id, std::int64_t at) {
  const MaskedContract c = *masked_contract_of(model, "test");
  std::map<std::string, CoremlArray> inputs;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       const std::vector<float>& numbers) {
    CoremlArray array{CoremlType::f32, std::move(shape), {}};
    array.bytes.resize(numbers.size() * 4);
    std::memcpy(array.bytes.data(), numbers.data(), array.bytes.size());
    inputs[name] = std::move(array);
  };
  CoremlArray ids{CoremlType::i32, {1, 1}, std::vector<std::byte>(4)};
  std::memcpy(ids.bytes.data(), &id, 4);
  inputs[c.tokens] = ids;
  std::vector<float> write(static_cast<std::size_t>(c.slots)), seen(write.size(), -1e4f);
  write[static_cast<std::size_t>(at)] = 1.0f;
  std::fill_n(seen.begin(), at + 1, 0.0f);
  add(c.write_mask, {1, 1, c.slots, 1}, write);
  for (const SeenMask& mask : c.masks) add(mask.input, {1, 1, 1, c.slots}, seen);
  for (const RopeInputs& rope : c.ropes) {
    std::vector<float> cosine, sine;
    for (const double frequency : rope.frequencies) {
      cosine.push_back(static_cast<float>(std::cos(static_cast<double>(at) * frequency)));
      sine.push_back(static_cast<float>(std::sin(static_cast<double>(at) * frequency)));
    }
    add(rope.cos, {1, std::ssize(rope.frequencies)}, cosine);
    add(rope.sin, {1, std::ssize(rope.frequencies)}, sine);
  }
  return inputs;
}

// 12 slots, 32, and back: the text goes on as in a package that had 32 all the time.
TEST(Export, StatesMoveToAPackageOfAnotherLengthAndBack) {
  const TemporaryFolder folder;
  const std::string model = KVTIDE_GOLDENS "/folders/llama-f32";
  for (const std::int64_t slots : {12, 32}) {
    CoremlExport how = small();
    how.slots = slots;
    export_coreml(model, folder / cat(slots, ".mlpackage"), how);
  }
  CoremlModel short_one(folder / "12.mlpackage"), long_one(folder / "32.mlpackage");
  const auto read = [](CoremlModel& with, CoremlState& state, std::size_t from, std::size_t to) {
    CoremlArray logits;
    for (std::size_t at = from; at < to; ++at)
      logits =
          with.predict(call_of(with, kExportedText[at], static_cast<std::int64_t>(at)), &state).at("logits");
    return logits.bytes;
  };
  CoremlState large = long_one.make_state();
  const auto wanted = read(long_one, large, 0, 10), further = read(long_one, large, 10, 20);

  CoremlState state = short_one.make_state();
  EXPECT_EQ(read(short_one, state, 0, 10), wanted);
  CoremlState grown = long_one.make_state_from(state, 10);
  CoremlState back = short_one.make_state_from(grown, 10);
  for (const std::string& name : state.names())
    EXPECT_EQ(back.read(name).bytes, state.read(name).bytes) << name;
  EXPECT_EQ(read(long_one, grown, 10, 20), further);
  expect_refused(ErrorCode::context_full, "has room for 12 tokens, and 20 were read",
                 [&] { short_one.make_state_from(grown, 20); });
  expect_refused(ErrorCode::invalid_argument, "position is -1",
                 [&] { short_one.make_state_from(grown, -1); });
}

TEST(Export, SnapshotsKnowTheirPackage) {
  const TemporaryFolder folder;
  for (const char* name : {"llama-f32", "qwen2-bf16"})
    export_coreml(cat(KVTIDE_GOLDENS "/folders/", name), folder / cat(name, ".mlpackage"), small());
  CoremlModel model(folder / "llama-f32.mlpackage"), other(folder / "qwen2-bf16.mlpackage");
  CoremlState state = model.make_state();
  model.predict(call_of(model, 7, 0), &state);
  model.save_state(state, folder / "one.safetensors");
  CoremlState again = model.load_state(folder / "one.safetensors");
  for (const std::string& name : state.names()) EXPECT_EQ(again.read(name).bytes, state.read(name).bytes);
  EXPECT_EQ(model.predict(call_of(model, 3, 1), &again).at("logits").bytes,
            model.predict(call_of(model, 3, 1), &state).at("logits").bytes);
  expect_refused(ErrorCode::invalid_argument, "of another package",
                 [&] { other.load_state(folder / "one.safetensors"); });
  std::ofstream(folder / "bad") << "no snapshot at all";
  expect_refused(ErrorCode::bad_format, "bad", [&] { model.load_state(folder / "bad"); });
  EXPECT_EQ(model.identity().size(), 64u);
}

}  // namespace
}  // namespace kvtide::coreml
