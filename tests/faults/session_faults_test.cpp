// Sessions, when memory ends: made, read, forked, changed, saved and restored.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>

#include "kvtide/error.h"
#include "kvtide/generate.h"
#include "kvtide/session.h"
#include "tests/faults/every_allocation.h"
#include "tests/faults/session_world.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

using testing::fail_every_allocation;
using testing::kinds_of_sessions;
using testing::SessionKind;
using testing::SessionWorld;
using testing::Trial;

TEST(AllocationFaults, ASessionIsMadeOrMemoryEnded) {
  for (const SessionKind& kind : kinds_of_sessions()) {
    SessionWorld world(kind);
    Trial trial;
    trial.name = "a session, " + kind.name;
    trial.run = [&] { world.session.emplace(world.model, world.options()); };
    trial.look = [&] { return std::string(world.session ? "there" : "not there"); };
    trial.end = [&] {
      world.read_to(kind.prefix);
      return world.seen();
    };
    trial.destroy = [&] { world.session.reset(); };
    fail_every_allocation(trial);
  }
}

// What a failed reading leaves: whole chunks. Reading on from there ends where an undisturbed reading ends.
TEST(AllocationFaults, ATextIsReadOrStopsBehindAWholeChunk) {
  for (const SessionKind& kind : kinds_of_sessions()) {
    SessionWorld world(kind);
    world.make(kind.prefix);
    std::set<Pos> chunks;  // positions behind which an undisturbed reading has whole chunks
    ReadOptions noting;
    noting.progress = [&](std::int64_t done) { return chunks.insert(kind.prefix + done).second; };
    world.session->read(world.text_from(kind.prefix, kind.end), noting);
    chunks.insert(kind.prefix);
    if (const auto counts = world.session->procedural_counts()) {
      EXPECT_GT(counts->blocks_sealed, 2);
      EXPECT_GT(counts->consolidations + counts->thinned + counts->spilled_rows, 0) << kind.name;
      if (kind.name == "procedural, thinning") {
        EXPECT_GT(counts->thinned, 0);
      }
      if (kind.spills) {
        EXPECT_GT(counts->spilled_rows, 0);
      }
    }

    Trial trial;
    trial.name = "read, " + kind.name;
    trial.make = [&] { world.make(kind.prefix); };
    trial.run = [&] {
      world.session->read(world.text_from(world.session->position(), kind.end), world.with_logits);
    };
    trial.look = [&] {
      const Pos position = world.session->position();
      EXPECT_TRUE(chunks.contains(position)) << position;
      EXPECT_EQ(world.session->tokens().size(), static_cast<std::size_t>(position));
      if (position == kind.prefix) {
        EXPECT_EQ(world.seen(), world.seen_at_prefix);
      }
      return std::string();
    };
    trial.end = [&] { return world.seen_after_more(); };
    trial.destroy = [&] { world.session.reset(); };
    trial.trials = 30;
    fail_every_allocation(trial);
  }
}

TEST(AllocationFaults, TextIsWrittenOrMemoryEnded) {
  SessionWorld world(kinds_of_sessions().front());
  std::optional<Generated> written;
  GenerateOptions options;
  options.max_tokens = 6;
  options.stop = {"never to be written by anybody, whatever the model"};
  options.sampler = {.temperature = 0.9f, .repeat_penalty = 1.1f, .seed = 4};
  Trial trial;
  trial.name = "generate";
  trial.make = [&] { world.make(20); };
  trial.run = [&] {
    // What was written before memory ended stands in the session: begin anew.
    if (world.session->position() > 20) world.make(20);
    written = generate(*world.session, options);
  };
  trial.end = [&] { return written->text + " " + world.seen(); };
  trial.destroy = [&] {
    written.reset();
    world.session.reset();
  };
  fail_every_allocation(trial);
}

TEST(AllocationFaults, AForkIsMadeAndWritesBesideItsOriginalOrMemoryEnded) {
  for (const SessionKind& kind : kinds_of_sessions()) {
    SessionWorld world(kind);
    std::optional<Session> forked;
    Trial trial;
    trial.make = [&] { world.make(kind.prefix + 5); };
    trial.name = "fork, " + kind.name;
    trial.run = [&] { forked.emplace(world.session->fork()); };
    trial.look = [&] { return world.seen(); };
    trial.end = [&] {
      std::string both = world.seen_after_more();
      std::swap(*world.session, *forked);
      return both + "; the fork: " + world.seen_after_more();
    };
    trial.destroy = [&] {
      forked.reset();
      world.session.reset();
    };
    fail_every_allocation(trial);

    trial.name = "append to a fork, " + kind.name;
    trial.make = [&] {
      world.make(kind.prefix + 5);
      forked.emplace(world.session->fork());
    };
    trial.run = [&] {
      if (forked->position() == kind.prefix + 5)
        forked->read(world.text_from(kind.prefix + 5, kind.prefix + 6));
    };
    fail_every_allocation(trial);
  }
}

TEST(AllocationFaults, AMemoryIsChangedOrMemoryEnded) {
  const Pos at = 70;
  const std::vector<Transition> changes = {
      Expand{400},          Compact{100},       Truncate{65},
      Truncate{0},          Truncate{50, true}, Drop{{20, 40}, false},
      Drop{{20, 40}, true}, SetAttention{30},   SetAttention{.automatic = AutoAttention{16, 64}}};
  for (const SessionKind& kind : kinds_of_sessions())
    for (std::size_t i = 0; i < changes.size(); ++i) {
      SessionWorld world(kind);
      world.make(at);
      if (!world.session->plan(changes[i])) continue;
      bool done = false;
      Trial trial;
      trial.name = std::string(transition_name(changes[i])) + " " + std::to_string(i) + ", " + kind.name;
      trial.make = [&] {
        done = false;
        world.make(at);
      };
      trial.run = [&] {
        if (!done) world.session->apply(changes[i]);
        done = true;
      };
      trial.look = [&] { return world.seen(); };
      trial.end = [&] { return world.seen() + world.seen_after_more(); };
      trial.destroy = [&] { world.session.reset(); };
      trial.trials = 15;
      fail_every_allocation(trial);
    }
}

TEST(AllocationFaults, AMemoryIsClearedAndPinnedOrMemoryEnded) {
  for (const SessionKind& kind : kinds_of_sessions()) {
    SessionWorld world(kind);
    std::optional<Session> forked;
    Trial trial;
    trial.name = "clear, " + kind.name;
    trial.run = [&] { world.session->clear(); };
    trial.make = [&] {
      world.make(kind.end);
      forked.emplace(world.session->fork());
    };
    trial.look = [&] { return world.seen(); };
    trial.end = [&] {
      world.read_to(kind.prefix);
      return world.seen();
    };
    trial.destroy = [&] {
      forked.reset();
      world.session.reset();
    };
    trial.trials = 15;
    fail_every_allocation(trial);
    if (!kind.options.procedural) continue;

    trial.name = "pin, " + kind.name;
    const PosRange pinned{kind.end - 3, kind.end + 4};
    trial.run = [&] { world.session->pin(pinned); };
    trial.end = [&] {
      EXPECT_FALSE(world.session->options().procedural->pins.empty());
      return world.seen_after_more();
    };
    fail_every_allocation(trial);
  }
}

TEST(AllocationFaults, AMemoryIsSavedAndLoadedOrMemoryEnded) {
  for (SessionKind kind : kinds_of_sessions()) {
    kind.options.shadow.reset();  // it has to see a text from its start
    if (kind.spills) continue;    // refused
    SessionWorld world(kind);
    const testing::TemporaryFolder folder;
    const std::string path = folder.path("memory.kv"), older = folder.path("older.kv");
    world.make(kind.prefix);
    world.session->save(older);
    const auto bytes_of = [](const std::string& file) {
      std::ifstream in(file, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const std::string old_bytes = bytes_of(older);
    Trial trial;
    trial.name = "save, " + kind.name;
    trial.make = [&] {
      world.make(kind.end);
      std::filesystem::copy_file(older, path, std::filesystem::copy_options::overwrite_existing);
    };
    trial.run = [&] { world.session->save(path); };
    trial.look = [&] {
      int files = 0;
      for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder.path("."))) ++files;
      return world.seen() + ", files: " + std::to_string(files) +
             (bytes_of(path) == old_bytes ? ", the old file" : ", another file");
    };
    trial.end = [&] {
      world.session->load(path);
      return world.seen_after_more();
    };
    trial.destroy = [&] { world.session.reset(); };
    trial.trials = 15;
    fail_every_allocation(trial);

    world.make(kind.end);
    world.session->save(path);
    trial.name = "load, " + kind.name;
    trial.make = [&] { world.make(kind.prefix); };
    trial.run = [&] { world.session->load(path); };
    trial.look = [&] { return world.seen(); };
    trial.end = [&] { return world.seen_after_more(); };
    fail_every_allocation(trial);

    std::optional<Session> other;
    world.make(kind.end);
    other.emplace(world.session->fork());
    trial.name = "restore, " + kind.name;
    trial.run = [&] { world.session->restore(other->state()); };
    fail_every_allocation(trial);
  }
}

// Questions change nothing, whatever they meet.
TEST(AllocationFaults, AQuestionIsAnsweredOrMemoryEnded) {
  for (const SessionKind& kind : kinds_of_sessions()) {
    SessionWorld world(kind);
    Trial trial;
    trial.name = "questions, " + kind.name;
    trial.make = [&] { world.make(kind.end); };
    trial.run = [&] {
      const Session& s = *world.session;
      s.rows(), s.room(), s.memory(), s.procedural_counts(), s.newest_seal(), s.drift(), s.procedural_plan();
      s.attention_changes(), s.plan(Truncate{1}), s.plan(Compact{1}), s.plan(SetAttention{3});
      const State& state = s.state();
      state.shape(), state.rows(), state.runs(0), state.carried();
      if (!kind.spills) state.plain_rows(0);
      state.view(0, KvPart::keys, state.runs(0).back());
    };
    trial.look = [&] { return world.seen(); };
    trial.end = [&] { return world.seen_after_more(); };
    trial.destroy = [&] { world.session.reset(); };
    trial.trials = 15;
    fail_every_allocation(trial);
  }
}

}  // namespace
}  // namespace kvtide
