// Snapshots that were cut, flipped, or changed and sealed again: refused, or a state that is what the file
// says. Never anything else.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/snapshot.h"
#include "tests/base/memory_files.h"
#include "tests/kernels/samples.h"
#include "tests/state/filled_state.h"
#include "tests/state/procedural/procedural_state.h"
#include "tests/state/snapshot_bytes.h"
#include "tests/state/snapshot_walk.h"

namespace kvtide {
namespace {

using testing::append;
using testing::MemoryFiles;
using testing::SnapshotParts;
using Bytes = std::vector<std::byte>;

// A few tokens in two layers, with a window, an attention size and a closed gap: every field says something.
Bytes small_file() {
  KvSpec spec;
  spec.layers = {{2, 4, std::nullopt}, {1, 4, 3}};
  spec.capacity = 16;
  spec.max_step = 4;
  spec.slack = 1;
  KvState state(spec);
  append(state, 9);
  state.apply(Drop{{3, 5}, true});
  append(state, 1);
  state.apply(SetAttention{6});
  MemoryFiles files;
  SnapshotExtras extras;
  extras.identity = {{"model", "ab"}};
  extras.tokens = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  extras.logits = {1.0f, 2.0f, 3.0f};
  save_snapshot(files, "a", state, extras);
  return files.get("a");
}

// A procedural memory whose next seal merges old blocks and thins those of its full head.
Bytes procedural_file() {
  KvState state(testing::tiny_procedural_spec());
  ThreadPool pool(1);
  testing::feed(state, pool, 16 + 16 * 8 + 5);
  MemoryFiles files;
  save_snapshot(files, "a", state, {});
  return files.get("a");
}

// "" when the file is refused in order, "loaded" when it gave a sound state, otherwise what went wrong.
std::string outcome(const Bytes& bytes) {
  MemoryFiles files;
  files.put("a", bytes);
  try {
    Snapshot snapshot = load_snapshot(files, "a");
    const std::string wrong = testing::walk(snapshot);
    return wrong.empty() ? "loaded" : wrong;
  } catch (const Error& error) {
    const std::set<ErrorCode> fine{ErrorCode::bad_format, ErrorCode::unsupported, ErrorCode::out_of_memory};
    if (!fine.contains(error.code())) return cat("the code ", error_code_name(error.code()));
    return error.message().starts_with("a: ") ? "" : "a message without the file: " + error.message();
  }
}

TEST(SnapshotDamage, EveryTruncationIsRefused) {
  const Bytes sound = small_file();
  ASSERT_EQ(outcome(sound), "loaded");
  for (std::size_t size = 0; size < sound.size(); ++size)
    ASSERT_EQ(outcome({sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size)}), "") << size;
}

TEST(SnapshotDamage, EveryFlippedBitIsRefused) {
  Bytes bytes = small_file();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte{1} << bit;
      ASSERT_EQ(outcome(bytes), "") << "byte " << i << ", bit " << bit;
      bytes[i] ^= std::byte{1} << bit;
    }
}

TEST(SnapshotDamage, WhatTheTestTakesApartAndSealsAgainIsTheSameFile) {
  const Bytes sound = small_file();
  EXPECT_EQ(testing::put_together(testing::take_apart(sound)), sound);
}

// [first, last) of every value of the JSON text that is a number, and of every string.
std::vector<std::pair<std::size_t, std::size_t>> values_in(const std::string& json) {
  std::vector<std::pair<std::size_t, std::size_t>> values;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t start = at;
    if (json[at] == '"') {
      at = json.find('"', at + 1) + 1;
      values.emplace_back(start, at);
    } else if (std::isdigit(static_cast<unsigned char>(json[at])) != 0) {
      while (std::isdigit(static_cast<unsigned char>(json[at])) != 0) ++at;
      values.emplace_back(start, at);
    } else {
      ++at;
    }
  }
  return values;
}

// Counts what was refused and what loaded.
void replace_any_value(const Bytes& file, int& refused, int& loaded) {
  const SnapshotParts sound = testing::take_apart(file);
  for (const auto& [first, last] : values_in(sound.header)) {
    const std::string old = sound.header.substr(first, last - first);
    std::vector<std::string> others{"0",
                                    "-1",
                                    "1",
                                    "2",
                                    "7",
                                    "65536",
                                    "1048576",
                                    "2147483647",
                                    "1099511627776",
                                    "4611686018427387904",
                                    "9223372036854775807",
                                    "18446744073709551615",
                                    "123456789012345678901234567890",
                                    "0.5",
                                    "1e300",
                                    "null",
                                    "true",
                                    "[]",
                                    "{}",
                                    "[[[[[[[[[[]]]]]]]]]]",
                                    "\"q8_0\"",
                                    "\"f32\"",
                                    "\"q4_0\"",
                                    "\"logits\"",
                                    "\"layers.1.k\"",
                                    "\"layers.99.k\"",
                                    ""};
    if (old[0] != '"')
      for (const int by : {-1, 1}) others.push_back(cat(std::stoll(old) + by));
    for (const std::string& other : others) {
      SnapshotParts parts = sound;
      parts.header.replace(first, last - first, other);
      const std::string found = outcome(testing::put_together(parts));
      ASSERT_TRUE(found.empty() || found == "loaded")
          << found << "; " << old << " at " << first << " became " << other << "\n"
          << parts.header;
      ++(found.empty() ? refused : loaded);
    }
  }
}

TEST(SnapshotDamage, AnyValueOfTheHeaderReplacedAndSealedAgain_IsRefusedOrLoadsSoundly) {
  int refused = 0, loaded = 0;
  replace_any_value(small_file(), refused, loaded);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(loaded, 10) << "some values may be others: token ids, the capacity";
}

TEST(SnapshotDamage, AnyValueOfAProceduralHeaderReplacedAndSealedAgain_IsRefusedOrGoesOnSoundly) {
  ASSERT_EQ(outcome(procedural_file()), "loaded");
  int refused = 0, loaded = 0;
  replace_any_value(procedural_file(), refused, loaded);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(loaded, 10) << "counts may be others";
}

TEST(SnapshotDamage, TypesOfFullRowsThatDoNotFitAreRefused_AndWithoutOneTheyAreThoseOfOtherRows) {
  KvSpec spec = testing::procedural_spec();
  ThreadPool pool(1);
  const auto with = [&](DType type, const std::string& was, const std::string& becomes) {
    spec.procedural->copy_type = type;
    KvState state(spec);
    testing::feed(state, pool, 300);
    MemoryFiles files;
    SnapshotExtras extras;
    extras.tokens.assign(300, 1);
    save_snapshot(files, "a", state, extras);
    SnapshotParts parts = testing::take_apart(files.get("a"));
    const std::size_t at = parts.header.find(was);
    EXPECT_NE(at, std::string::npos) << was;
    parts.header.replace(at, was.size(), becomes);
    return outcome(testing::put_together(parts));
  };
  const std::string four = R"("full_type":"q4_0")", eight = R"("full_type":"q8_0",)";
  EXPECT_EQ(with(DType::q4_0, four, four), "loaded");
  EXPECT_EQ(with(DType::q8_0, eight, ""), "loaded");
  for (const char* other : {R"("q8_0")", R"("q6_k")", R"("q4_1")", R"("")", "4", "null", "[]"})
    EXPECT_EQ(with(DType::q4_0, four, cat(R"("full_type":)", other)), "") << other;
  EXPECT_EQ(with(DType::q4_0, R"("row_type":"q8_0")", R"("row_type":"q4_0")"), "");
  EXPECT_EQ(with(DType::q4_0, R"("dtype":"q4_0")", R"("dtype":"q8_0")"), "");
}

TEST(SnapshotDamage, AHeaderThatIsWrongIsToldByKeyAndPlace) {
  const auto message = [](std::string_view was, std::string_view becomes) {
    SnapshotParts parts = testing::take_apart(small_file());
    const std::size_t at = parts.header.find(was);
    EXPECT_NE(at, std::string::npos) << was;
    if (at == std::string::npos) return std::string();
    parts.header.replace(at, was.size(), becomes);
    MemoryFiles files;
    files.put("a", testing::put_together(parts));
    try {
      load_snapshot(files, "a");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_format);
      return error.message();
    }
    return std::string("loaded");
  };
  const std::string says = "a: not a sound snapshot: its header: ";
  EXPECT_EQ(message("\"kvtide-state\"", "\"state\""),
            says + "'format' is 'state'; it must be \"kvtide-state\"");
  EXPECT_EQ(message("\"slack\":", "\"slick\":"), says + "the key 'spec.slack' is missing");
  EXPECT_EQ(message("\"window\":", "\"windy\":"), says + "the key 'spec.layers.window' is missing");
  EXPECT_EQ(message("\"minor\":7", "\"minor\":null"), says + "the key 'minor' is missing");
  EXPECT_EQ(message("\"exact\":", "\"exact\":1,\"exacts\":"),
            says + "'exact' is 1; it must be true or false");
  EXPECT_EQ(message("\"segments\":[[", "\"segments\":[[1,"),
            says + "'segments' is a list; it must be a list of [first, last, shift]");
}

// Removes a member with a number from the header's text, the first behind `from`.
void remove_number(std::string& header, const std::string& key, std::size_t from) {
  const std::size_t at = header.find(cat("\"", key, "\":"), from);
  ASSERT_NE(at, std::string::npos) << key;
  header.erase(at, header.find(',', at) + 1 - at);
}

TEST(SnapshotDamage, AProceduralFileOfFormat10_IsReadAndHasNoBudget) {
  const Bytes now = procedural_file();
  SnapshotParts parts = testing::take_apart(now);
  remove_number(parts.header, "minor", 0);
  for (const char* key : {"budget", "budget_for", "rows", "full_from", "first_layer", "last_layer"})
    remove_number(parts.header, key, parts.header.find("\"procedural\":{"));
  MemoryFiles files;
  files.put("old", testing::put_together(parts));
  files.put("now", now);
  const Snapshot old = load_snapshot(files, "old"), same = load_snapshot(files, "now");
  EXPECT_EQ(old.minor, 0);
  EXPECT_EQ(same.minor, 7);
  const ProceduralSpec& spec = *old.state.spec().procedural;
  EXPECT_EQ(spec.budget, 0);
  EXPECT_EQ(spec.rows, rows_of_plans(spec));
  EXPECT_TRUE(keeps_the_same(spec, *same.state.spec().procedural));
  EXPECT_EQ(outcome(files.get("old")), "loaded");
  // A file of today has to tell them.
  parts = testing::take_apart(now);
  remove_number(parts.header, "budget", 0);
  EXPECT_EQ(outcome(testing::put_together(parts)), "");
}

TEST(SnapshotDamage, ABudgetThatTheMemoryDoesNotFitIsRefused) {
  KvSpec spec = testing::tiny_procedural_spec();
  spec.procedural->budget = planned_bytes(spec).total();
  MemoryFiles files;
  save_snapshot(files, "a", KvState(spec), {});
  ASSERT_EQ(outcome(files.get("a")), "loaded");
  SnapshotParts parts = testing::take_apart(files.get("a"));
  const std::string told = cat("\"budget\":", spec.procedural->budget, ",");
  ASSERT_NE(parts.header.find(told), std::string::npos);
  parts.header.replace(parts.header.find(told), told.size(),
                       cat("\"budget\":", spec.procedural->budget - 1, ","));
  EXPECT_EQ(outcome(testing::put_together(parts)), "");
}

TEST(SnapshotDamage, RandomChangesSealedAgain_AreRefusedOrLoadSoundly) {
  const SnapshotParts sound = testing::take_apart(small_file());
  testing::Rng rng(20);
  for (int round = 0; round < 5000; ++round) {
    SnapshotParts parts = sound;
    for (std::int64_t changes = 1 + rng.below(3); changes > 0; --changes) {
      std::string& text = parts.header;
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
      const auto size = static_cast<std::size_t>(1 + rng.below(30));
      switch (rng.below(5)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, size);
          break;
        case 2:
          text.insert(
              at,
              text.substr(static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size()))), size));
          break;
        case 3:
          text[at] = "0123456789{}[],:\"-"[rng.below(18)];
          break;
        default:
          parts.payload.resize(
              static_cast<std::size_t>(rng.below(1 + 2 * static_cast<std::int64_t>(parts.payload.size()))));
      }
      if (text.empty()) text = "{}";
    }
    const std::string found = outcome(testing::put_together(parts));
    ASSERT_TRUE(found.empty() || found == "loaded") << found << "\n" << parts.header;
  }
}

// One row of many narrow heads takes a page for each of them: a small file must not ask for much memory.
TEST(SnapshotDamage, AFileThatAsksForFarMoreMemoryThanItHasRows_IsRefused) {
  const int heads = 16384;
  KvSpec spec;
  spec.layers = {{heads, 1, std::nullopt}};
  spec.capacity = 1;
  SnapshotParts parts;
  parts.payload.resize(std::size_t{2} * 2 * heads);
  parts.header = cat(
      R"({"format":"kvtide-state","identity":{},"exact":false,"spec":{"layers":[{"kv_heads":)", heads,
      R"(,"head_dim":1,"window":null}],"key_type":"f16","value_type":"f16","capacity":1,"max_append":1,)",
      R"("slack":0,"rotary":true,"rolling":null},"position":1,"attention_size":null,"segments":[[0,1,0]],)",
      R"("released":[0],"forgotten":[0],"edited":0,"tokens":[1],"payload_bytes":)", 4 * heads,
      R"(,"tensors":[{"name":"layers.0.k","dtype":"f16","shape":[)", heads,
      R"(,1,1],"first":0,"offset":0,"bytes":)", 2 * heads,
      R"(},{"name":"layers.0.v","dtype":"f16","shape":[)", heads, R"(,1,1],"first":0,"offset":)", 2 * heads,
      R"(,"bytes":)", 2 * heads, "}]}");
  MemoryFiles files;
  files.put("a", testing::put_together(parts));
  try {
    load_snapshot(files, "a");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(
        error.message(),
        "a: not a sound snapshot: its 65536 bytes of rows are scattered over 134217728 bytes of memory");
  }
}

}  // namespace
}  // namespace kvtide
