// Segments: a chain of them is the snapshot that would have been written instead, byte for byte, and each holds what is new.
// Damaged ones are refused.
#include "state/segment.h"

#include <gtest/gtest.h>

#include <functional>

#include "kvtide/error.h"
#include "tests/base/memory_files.h"
#include "tests/state/filled_state.h"
#include "tests/state/procedural/procedural_state.h"
#include "tests/state/snapshot_walk.h"

namespace kvtide {
namespace {

using testing::append;
using testing::MemoryFiles;
using testing::small_spec;
using Bytes = std::vector<std::byte>;

SnapshotExtras extras_of(const KvState& state) {
  SnapshotExtras extras;
  extras.identity = {{"model", "ab"}};
  for (Pos p = 0; p < state.position(); ++p) extras.tokens.push_back(static_cast<TokenId>(p % 1000));
  extras.logits = {1.5f, static_cast<float>(state.position())};
  return extras;
}

// The snapshot that a chain makes, as a file.
Bytes whole(MemoryFiles& files, const std::vector<std::string>& chain) {
  const Snapshot loaded = load_segments(files, chain);
  save_snapshot(files, "whole", loaded.state, loaded.extras);
  return files.get("whole");
}

// One session: after each of its turns a segment is written behind the ones before.
struct Chain {
  MemoryFiles files;
  std::vector<std::string> names;
  std::vector<std::size_t> sizes;  // of the segments, and of the whole snapshots
  std::vector<std::size_t> whole_sizes;

  void add(const KvState& state) {
    const std::string name = cat("s", sizes.size());
    std::optional<SegmentBefore> before;
    if (!names.empty()) before = {names.back(), names.back()};
    const SnapshotExtras extras = extras_of(state);
    save_segment(files, name, state, extras, before);
    save_snapshot(files, "wanted", state, extras);
    if (holds_everything(name)) names.clear();
    names.push_back(name);
    sizes.push_back(files.get(name).size());
    whole_sizes.push_back(files.get("wanted").size());
    EXPECT_EQ(whole(files, names), files.get("wanted")) << name;
  }

  bool holds_everything(const std::string& name) const {
    const Bytes& bytes = files.get(name);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return text.find("\"source\":null") < 64;
  }
};

TEST(Segments, MakeTheSnapshot_AndHoldWhatIsNew) {
  for (const DType type : {DType::f16, DType::q8_0}) {
    KvSpec spec = small_spec(4000, 64, type);
    KvState state(spec);
    append(state, 1000);
    Chain chain;
    chain.add(state);
    for (int turn = 0; turn < 5; ++turn) {
      append(state, 20);
      chain.add(state);
      EXPECT_EQ(chain.names.size(), static_cast<std::size_t>(turn) + 2);
      // Rows of twenty tokens, a header with all tokens, and what stands behind.
      EXPECT_LT(chain.sizes.back(), chain.whole_sizes.back() / 5);
    }
    chain.add(state);  // nothing was read
    EXPECT_LT(chain.sizes.back(), chain.whole_sizes.back() / 5);
  }
}

TEST(Segments, OfLayersThatForget_HoldTheirNewestRows) {
  KvSpec spec = small_spec(4000);
  spec.layers.push_back({2, 32, 512});
  KvState state(spec);
  append(state, 1500);
  Chain chain;
  chain.add(state);
  for (int turn = 0; turn < 4; ++turn) {
    append(state, 30);
    chain.add(state);
    EXPECT_LT(chain.sizes.back(), chain.whole_sizes.back() / 5);
  }
}

TEST(Segments, OfAnyMemoryAndAnyChange_MakeTheSnapshot) {
  const std::vector<std::function<void(KvState&)>> changes = {
      [](KvState& s) { append(s, 40); },        [](KvState& s) { s.apply(Truncate{s.position() - 30}); },
      [](KvState& s) { append(s, 7, 1); },      [](KvState& s) { s.apply(Drop{{20, 30}, true}); },
      [](KvState& s) { append(s, 300); },       [](KvState& s) { s.apply(SetAttention{60}); },
      [](KvState& s) { s = s.fork(); },         [](KvState& s) { append(s, 1); },
      [](KvState& s) { s.apply(Drop{{0, 9}}); }};
  for (const bool rolling : {false, true}) {
    KvSpec spec = small_spec(2000);
    spec.layers.push_back({1, 32, 30});
    spec.slack = 40;
    if (rolling) spec.rolling = Rolling{4, 100};
    KvState state(spec);
    append(state, 120);
    Chain chain;
    chain.add(state);
    for (const auto& change : changes) {
      if (rolling && (&change == &changes[3] || &change == &changes.back())) continue;  // sinks stay
      change(state);
      chain.add(state);
    }
  }
}

TEST(Segments, OfAProceduralMemory_MakeTheSnapshot) {
  KvState state(testing::tiny_procedural_spec());
  ThreadPool pool(1);
  Chain chain;
  for (int turn = 0; turn < 12; ++turn) {
    testing::feed(state, pool, 16 + turn % 3 * 5);
    chain.add(state);
  }
}

// Rows that changed are written, whatever the tokens say.
TEST(Segments, OfATextThatWasChanged_CopyNothingThatIsOther) {
  KvState one(small_spec(4000)), other(small_spec(4000));
  append(one, 600);
  append(other, 600, 1);
  Chain chain;
  chain.add(one);
  append(other, 10, 1);
  chain.add(other);
  EXPECT_EQ(chain.names.size(), 1u);  // it holds everything
}

TEST(Segments, BehindAFileThatCannotBeRead_HoldEverything) {
  KvState state(small_spec());
  append(state, 100);
  MemoryFiles files;
  files.put("bad", Bytes(300));
  for (const std::string before : {"missing", "bad"}) {
    save_segment(files, "a", state, extras_of(state), SegmentBefore{before, "x"});
    save_snapshot(files, "wanted", state, extras_of(state));
    EXPECT_EQ(whole(files, {"a"}), files.get("wanted"));
  }
}

class DamagedSegments : public ::testing::Test {
 protected:
  DamagedSegments() {
    KvState state(small_spec());
    append(state, 60);
    save_segment(files, "a", state, extras_of(state), std::nullopt);
    append(state, 5);
    save_segment(files, "b", state, extras_of(state), SegmentBefore{"a", "a"});
    save_snapshot(files, "wanted", state, extras_of(state));
  }

  std::string why(const std::vector<std::string>& chain) {
    try {
      Snapshot snapshot = load_segments(files, chain);
      const std::string wrong = testing::walk(snapshot);
      return wrong.empty() ? "loaded" : wrong;
    } catch (const Error& error) {
      return error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported
                 ? error.message()
                 : cat("the code ", error_code_name(error.code()));
    }
  }

  MemoryFiles files;
};

TEST_F(DamagedSegments, AreRefused) {
  EXPECT_EQ(why({"a", "b"}), "loaded");
  EXPECT_EQ(why({"b"}), "b: not a sound segment: it goes on from another one");
  EXPECT_EQ(why({"a", "a"}), "a: not a sound segment: it holds everything, and others stand before it");
  for (const std::string name : {"a", "b"}) {
    const Bytes sound = files.get(name);
    for (std::size_t at = 0; at < sound.size(); at += at < 600 ? 1 : 97) {
      Bytes flipped = sound, cut = sound;
      flipped[at] ^= std::byte{0x11};
      cut.resize(at);
      files.put(name, flipped);
      const std::string said = why({"a", "b"});
      // Sums of pieces are for who writes the next segment, and what "b" replaced is not read.
      if (said == "loaded") {
        EXPECT_EQ(whole(files, {"a", "b"}), files.get("wanted")) << at;
      } else {
        EXPECT_TRUE(said.starts_with("a: ") || said.starts_with("b: ")) << said;
      }
      files.put(name, cut);
      EXPECT_NE(why({"a", "b"}), "loaded") << at;
    }
    files.put(name, sound);
  }
}

TEST_F(DamagedSegments, CannotAskForMoreThanTheyHold) {
  const auto segment = [&](const std::string& json, std::size_t bytes) {
    Bytes out;
    const std::uint64_t length = json.size();
    const auto put = [&](const void* data, std::size_t size) {
      const auto* first = static_cast<const std::byte*>(data);
      out.insert(out.end(), first, first + size);
    };
    put("KVTSEG2\n", 8);
    put(&length, 8);
    put(json.data(), json.size());
    out.resize(out.size() + bytes);
    files.put("c", out);
  };
  segment(R"({"bytes":64,"source":"a","make":[[0,32],[0,32]]})", 0);
  EXPECT_EQ(why({"a", "c"}), "c: not a sound segment: it copies what it cannot");
  segment(R"({"bytes":1152921504606846976,"source":"a","make":[[0,1152921504606846976]]})", 0);
  EXPECT_EQ(why({"a", "c"}), "c: not a sound segment: it copies beyond the one before");
  segment(R"({"bytes":64,"source":"a","make":[[0,32],[16]]})", 32);
  EXPECT_EQ(why({"a", "c"}), "c: not a sound segment: its parts are not as long as it says");
  segment(R"({"bytes":64,"source":null,"make":[[0,64]]})", 0);
  EXPECT_EQ(why({"c"}), "c: not a sound segment: it copies what it cannot");
  segment(R"({"bytes":1,"source":null,"make":[[1]],"sums":"0"})", 1);
  EXPECT_EQ(why({"c"}), "c: not a sound segment: its sums are cut");
}

}  // namespace
}  // namespace kvtide
