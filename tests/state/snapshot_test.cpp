// Snapshots: what was saved comes back, whatever the state; what cannot be saved or loaded changes nothing.
#include "state/snapshot.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "kvtide/error.h"
#include "tests/base/memory_files.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::append;
using testing::MemoryFiles;
using testing::seen;
using testing::small_spec;

SnapshotExtras some_extras(const KvState& state) {
  SnapshotExtras extras;
  extras.identity = {{"architecture", "llama"}, {"model", "ab12"}, {"tokenizer", "cd\"\\\u00e9"}};
  extras.exact = true;
  for (Pos p = 0; p < state.position(); ++p) extras.tokens.push_back(static_cast<TokenId>(p * 37 % 1000));
  extras.logits = {1.5f, -0.0f, 3e38f, 1e-45f};
  return extras;
}

struct Story {
  std::string name;
  std::function<void(KvSpec&)> policy;
  std::function<void(KvState&)> events;
};

std::vector<Story> stories() {
  const auto same = [](KvSpec&) {};
  const auto nothing = [](KvState&) {};
  return {
      {"nothing read", same, nothing},
      {"one token", same, [](KvState& s) { append(s, 1); }},
      {"text", same, [](KvState& s) { append(s, 100); }},
      {"cut back", same,
       [](KvState& s) {
         append(s, 100);
         s.apply(Truncate{66});
       }},
      {"forked twice", same,
       [](KvState& s) {
         append(s, 70);
         s = s.fork();
         append(s, 20);
         s = s.fork();
         append(s, 50);
       }},
      {"a hole, a closed gap and a dropped end", same,
       [](KvState& s) {
         append(s, 150);
         s.apply(Drop{{20, 30}});
         s.apply(Drop{{70, 90}, true});
         s.apply(Drop{{140, 150}});
         append(s, 3);
       }},
      {"all dropped", same,
       [](KvState& s) {
         append(s, 50);
         s.apply(Drop{{0, 50}});
       }},
      {"an attention size", same,
       [](KvState& s) {
         append(s, 100);
         s.apply(SetAttention{17});
       }},
      {"resized", same,
       [](KvState& s) {
         append(s, 100);
         s.apply(Expand{100000});
         s.apply(Compact{101});
       }},
      {"a sliding layer",
       [](KvSpec& spec) {
         spec.layers.push_back({1, 32, 30});
       },
       [](KvState& s) {
         append(s, 300);
         s.apply(Drop{{280, 290}, true});
         append(s, 1);
       }},
      {"values in keys",
       [](KvSpec& spec) {
         spec.layers[0].values_in_keys = true;
         spec.layers.push_back({1, 32, 30});
       },
       [](KvState& s) {
         append(s, 200);
         s.apply(Drop{{20, 30}, true});
       }},
      {"rolling",
       [](KvSpec& spec) {
         spec.rolling = Rolling{4, 50};
         spec.slack = 5;
       },
       [](KvState& s) { append(s, 1000); }},
      {"absolute positions", [](KvSpec& spec) { spec.rotary = false; }, [](KvState& s) { append(s, 10); }},
  };
}

TEST(Snapshot, GivesBackWhatWasSaved_ForEveryPolicyAndMixOfTypes) {
  const DType types[] = {DType::f32, DType::f16, DType::q8_0};
  for (const Story& story : stories())
    for (const DType keys : types)
      for (const DType values : types) {
        KvSpec spec = small_spec(400);
        spec.key_type = keys;
        spec.value_type = values;
        story.policy(spec);
        KvState state(spec);
        story.events(state);
        MemoryFiles files;
        const SnapshotExtras extras = some_extras(state);
        save_snapshot(files, "a", state, extras);
        EXPECT_EQ(files.names.size(), 1u);
        Snapshot loaded = load_snapshot(files, "a", {{"model", "ab12"}});
        EXPECT_EQ(loaded.extras.identity, extras.identity);
        EXPECT_EQ(loaded.extras.exact, extras.exact);
        EXPECT_EQ(loaded.extras.tokens, extras.tokens);
        ASSERT_EQ(loaded.extras.logits.size(), extras.logits.size());
        EXPECT_EQ(std::memcmp(loaded.extras.logits.data(), extras.logits.data(), 16), 0);
        EXPECT_EQ(loaded.state.position(), state.position()) << story.name;
        EXPECT_EQ(loaded.state.rows(), state.rows()) << story.name;
        EXPECT_EQ(loaded.state.capacity(), state.capacity());
        EXPECT_EQ(loaded.state.attention_size(), state.attention_size());
        // Saved again, it is the same file: nothing was lost that a file can hold.
        save_snapshot(files, "b", loaded.state, extras);
        EXPECT_EQ(files.get("a"), files.get("b")) << story.name;
        for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
          const std::string before = seen(state, layer);
          EXPECT_EQ(before.find("something else"), std::string::npos) << story.name;
          EXPECT_EQ(seen(loaded.state, layer), before) << story.name;
        }
        loaded.state.apply(Expand{1 << 20});
        state.apply(Expand{1 << 20});
        append(loaded.state, 70);
        append(state, 70);
        EXPECT_EQ(seen(loaded.state), seen(state)) << story.name;
      }
}

// A chat's state is a fork of a fork: what its rows lie in is no part of the file.
TEST(Snapshot, IsTheSame_WhetherRowsLieInOnePieceOrInMany) {
  KvState plain(small_spec(400));
  append(plain, 230);
  std::vector<KvState> turns;
  turns.emplace_back(small_spec(400));
  for (const std::int64_t rows : {70, 90, 64, 6}) {
    turns.push_back(turns.back().fork());
    append(turns.back(), rows);
  }
  ASSERT_GT(turns.back().layer_rows(0).runs(0, 230).size(), 2u);
  MemoryFiles files;
  save_snapshot(files, "plain", plain, {});
  save_snapshot(files, "forked", turns.back(), {});
  EXPECT_EQ(files.get("plain"), files.get("forked"));
}

TEST(Snapshot, RestoresWhatCanStillBeTakenBack) {
  KvSpec spec = small_spec(400);
  spec.layers.push_back({1, 32, 30});
  spec.slack = 20;
  KvState state(spec);
  append(state, 300);
  MemoryFiles files;
  save_snapshot(files, "a", state, {});
  KvState loaded = std::move(load_snapshot(files, "a").state);
  for (Pos length = 0; length <= 300; ++length)
    EXPECT_EQ(loaded.plan(Truncate{length}).refusal(), state.plan(Truncate{length}).refusal()) << length;
}

TEST(Snapshot, OfAnotherModel_IsRefusedAndBothAreNamed) {
  KvState state(small_spec());
  append(state, 3);
  MemoryFiles files;
  save_snapshot(files, "a", state, some_extras(state));
  const auto refused = [&](const std::map<std::string, std::string>& expected, const std::string& says) {
    try {
      load_snapshot(files, "a", expected);
      ADD_FAILURE() << "accepted, instead of saying: " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.message(), says);
    }
  };
  refused({{"model", "ffff"}},
          "a: the snapshot belongs to another model: it says 'ab12', this one is 'ffff'");
  refused({{"model", "ab12"}, {"tokenizer", "x"}},
          "a: the snapshot belongs to another tokenizer: it says 'cd\"\\x5c\u00e9', this one is 'x'");
  refused({{"rope", "10000"}},
          "a: the snapshot belongs to another rope: it says nothing, this one is '10000'");
}

// Everything that is checked is checked before anything is handed out.
TEST(Snapshot, NamesWhatIsWrongWithAFile) {
  KvState state(small_spec());
  append(state, 70);
  MemoryFiles files;
  save_snapshot(files, "a", state, some_extras(state));
  const auto sound = files.get("a");
  const auto refused = [&](const std::function<void(std::vector<std::byte>&)>& damage, ErrorCode code,
                           const std::string& says) {
    auto bytes = sound;
    damage(bytes);
    files.put("b", bytes);
    try {
      load_snapshot(files, "b");
      ADD_FAILURE() << "accepted, instead of saying: " << says;
    } catch (const Error& error) {
      EXPECT_STREQ(error_code_name(error.code()), error_code_name(code)) << error.message();
      EXPECT_EQ(error.message(), "b: " + says);
    }
  };
  const std::string damaged = "not a sound snapshot: ";
  refused([](auto& b) { b.clear(); }, ErrorCode::bad_format, damaged + "it has only 0 bytes");
  refused([](auto& b) { b[0] = std::byte{'k'}; }, ErrorCode::bad_format,
          damaged + "it does not begin with the magic of a snapshot");
  refused([](auto& b) { b[8] = std::byte{2}; }, ErrorCode::unsupported,
          "snapshot version 2; this program reads version 1");
  refused([](auto& b) { b[40] ^= std::byte{1}; }, ErrorCode::bad_format, damaged + "its header is damaged");
  refused([](auto& b) { b[b.size() - 200] ^= std::byte{1}; }, ErrorCode::bad_format,
          damaged + "chunk 0 of its payload is damaged");
  refused([](auto& b) { b[b.size() - 20] ^= std::byte{1}; }, ErrorCode::bad_format,
          damaged + "its digest does not match");
  refused([](auto& b) { b.back() ^= std::byte{1}; }, ErrorCode::bad_format, damaged + "its end is damaged");
  refused([](auto& b) { b.push_back(std::byte{0}); }, ErrorCode::bad_format,
          damaged + cat("its length of ", sound.size() + 1, " bytes is not what its header says"));
  try {
    load_snapshot(files, "missing");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
  }
}

TEST(Snapshot, OfSeveralMebibytes_TellsWhichOfThemIsDamaged) {
  KvSpec spec = small_spec(20000, 512);
  KvState state(spec);
  append(state, 10000);  // 2 heads, 128 bytes, keys and values: 5,120,000 bytes, 5 chunks
  MemoryFiles files;
  save_snapshot(files, "a", state, {});
  KvState loaded = std::move(load_snapshot(files, "a").state);
  EXPECT_EQ(seen(loaded), "0-9999");
  auto bytes = files.get("a");
  const std::size_t payload = bytes.size() - 48 - 5 * 4 - 5120000;
  for (const std::size_t chunk : {0u, 2u, 4u}) {
    bytes[payload + (chunk << 20) + 77] ^= std::byte{4};
    files.put("b", bytes);
    bytes[payload + (chunk << 20) + 77] ^= std::byte{4};
    try {
      load_snapshot(files, "b");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), cat("b: not a sound snapshot: chunk ", chunk, " of its payload is damaged"));
    }
  }
}

// tests/goldens/state: made by a program of its own, from the description of the format. Files of version 1
// are read by every later program.
TEST(Snapshot, OfVersionOne_KeepsLoading) {
  MemoryFiles files;
  std::ifstream file(KVTIDE_GOLDENS "/state/version1.kv", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  files.put("version1.kv", {bytes.begin(), bytes.end()});
  Snapshot loaded = load_snapshot(files, "version1.kv", {{"model", "0123abcd"}, {"tokenizer", "fedc9876"}});
  EXPECT_EQ(loaded.extras.identity.at("architecture"), "golden");
  EXPECT_TRUE(loaded.extras.exact);
  ASSERT_EQ(loaded.extras.tokens.size(), 75u);
  for (std::size_t i = 0; i < 75; ++i) EXPECT_EQ(loaded.extras.tokens[i], static_cast<TokenId>(i * i % 997));
  EXPECT_EQ(loaded.extras.logits, (std::vector<float>{0.5f, -2.0f, 1024.25f}));
  KvState& state = loaded.state;
  EXPECT_EQ(state.position(), 75);
  EXPECT_EQ(state.capacity(), 128);
  EXPECT_EQ(state.attention_size(), 70);
  EXPECT_EQ(state.spec().key_type, DType::q8_0);
  EXPECT_EQ(state.spec().value_type, DType::f16);
  EXPECT_EQ(state.spec().slack, 3);
  EXPECT_TRUE(state.spec().rotary);
  ASSERT_EQ(state.spec().layers.size(), 2u);
  EXPECT_EQ(state.spec().layers[0].kv_heads, 2);
  EXPECT_EQ(state.spec().layers[1].window, 9);
  // Positions 20 to 24 were dropped and the gap closed when 70 had been read; 40 to 44 are a hole.
  // The token at 75 sees as far as 6, its own place included: position 1 stands there now.
  EXPECT_EQ(seen(state, 0), "1-19>5 25-39 45-74");
  EXPECT_EQ(seen(state, 1), "67-74");
  state.apply(SetAttention{std::nullopt});
  EXPECT_EQ(seen(state, 0), "0-19>5 25-39 45-74");
  for (const PosRange& run : {PosRange{0, 20}, PosRange{25, 40}, PosRange{45, 75}})
    for (int head = 0; head < 2; ++head)
      for (Pos p = run.first; p < run.last; ++p)
        for (const bool key : {true, false}) {
          const auto rows = state.rows_of_head(0, head, key ? KvPart::keys : KvPart::values, run);
          EXPECT_EQ(testing::compare_row(key ? DType::q8_0 : DType::f16, rows.row(p - run.first).data(),
                                         testing::row_numbers(p, 0, head, key, 32)),
                    "")
              << p;
        }
  EXPECT_EQ(state.plan(Truncate{72}).refusal(), "");

  // It goes on: with what was read before, a gap and all, and as it was after a second save.
  append(state, 20);
  EXPECT_EQ(seen(state, 0), "0-19>5 25-39 45-94");
  EXPECT_EQ(seen(state, 1), "87-94");
  save_snapshot(files, "on.kv", state, loaded.extras);
  KvState again = std::move(load_snapshot(files, "on.kv").state);
  EXPECT_EQ(seen(again, 0), "0-19>5 25-39 45-94");
}

}  // namespace
}  // namespace kvtide
