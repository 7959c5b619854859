// What several threads may do at the same time: sessions, forks, views and tokenizers of one model.
// The bits have to be those of one thread alone; under the thread sanitizer nothing may be reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

#include "kvtide/session.h"
#include "kvtide/stateful.h"
#include "tests/base/together.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::random_tokens;
using testing::run_together;
using testing::same_bits;
using testing::TemporaryFolder;

constexpr int kThreads = 4;

class Threads : public ::testing::Test {
 protected:
  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model({.gain = 2.0f}).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = random_tokens(360, 64, 5);

  // The same body on every thread, which is told its number.
  static void on_every_thread(const std::string& awaited, const std::function<void(int)>& body) {
    std::vector<std::function<void()>> bodies;
    for (int i = 0; i < kThreads; ++i) bodies.push_back([&body, i] { body(i); });
    run_together(awaited, bodies);
  }
};

TEST_F(Threads, ReadForkSaveAndLoadSessionsOfOneModel) {
  const std::span<const TokenId> text = text_;
  SessionOptions options;
  options.threads = 2;
  options.prefill_chunk = 32;
  const auto wanted = all_logits(model_, options, text);
  const auto last = std::span(wanted).last(64);
  const TemporaryFolder folder;
  on_every_thread("sessions of one model", [&](int i) {
    const std::string path = folder.path("state" + std::to_string(i));
    Session session(model_, options);
    session.read(text.first(200));
    Session fork = session.fork();
    session.save(path, folder.path(""));
    session.read(text.subspan(200));
    EXPECT_TRUE(same_bits(session.logits(), last));
    fork.clear();
    fork.load(path, folder.path(""));
    fork.read(text.subspan(200));
    EXPECT_TRUE(same_bits(fork.logits(), last));
    session.restore(fork.state(), folder.path(""));
    EXPECT_EQ(session.position(), 360);
  });
}

TEST_F(Threads, SaveToOneFile_WhichIsWhole) {
  const TemporaryFolder folder;
  Session session(model_, {.threads = 1});
  session.read(text_);
  std::vector<Session> forks;
  for (int i = 0; i < kThreads; ++i) forks.push_back(session.fork());
  on_every_thread("saves to one file", [&](int i) {
    Session& fork = forks[static_cast<std::size_t>(i)];
    for (int round = 0; round < 3; ++round) fork.save(folder.path("state.kv"));
    fork.load(folder.path("state.kv"));
    EXPECT_EQ(fork.position(), 360);
  });
  const std::filesystem::directory_iterator files(folder.path(""));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "a temporary file stayed behind";
}

TEST_F(Threads, TakeTheIdentityOfOneModel) {
  std::vector<std::map<std::string, std::string>> got(kThreads);
  on_every_thread("the hash of a model",
                  [&](int i) { got[static_cast<std::size_t>(i)] = model_.identity(); });
  const Model same(file_.path());
  for (const auto& identity : got) EXPECT_EQ(identity, same.identity());
}

TEST_F(Threads, EncodeAndDecodeWithOneTokenizer) {
  std::string text;
  while (text.size() < (1 << 15)) text += "the tide and the rest of the sand, it is near 1234. ";
  const Model folder(KVTIDE_GOLDENS "/folders/llama-f32");
  for (const Tokenizer* tokenizer : {&model_.tokenizer(), &folder.tokenizer()}) {
    const auto wanted = tokenizer->encode(text);
    const std::string back = tokenizer->decode(wanted);
    on_every_thread("encode and decode", [&](int) {
      EXPECT_EQ(tokenizer->encode(text), wanted);
      EXPECT_EQ(tokenizer->decode(wanted), back);
    });
  }
}

// Forks share rows. Each goes on in a thread of its own until it is gone; whoever is left takes the rows
// over.
class ForksInThreads : public Threads {
 protected:
  void check(const SessionOptions& options, const std::function<void(Session&)>& change = {}) {
    const std::span<const TokenId> text = text_;
    constexpr std::size_t kShared = 200;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::optional<Session>> sessions;
      sessions.emplace_back(std::in_place, model_, options);
      sessions[0]->read(text.first(kShared));
      for (int i = 1; i < kThreads; ++i) sessions.emplace_back(sessions[0]->fork());
      // Another text each, and what it gives when nobody else is there.
      std::vector<std::vector<TokenId>> rest;
      std::vector<std::vector<float>> wanted;
      for (int i = 0; i < kThreads; ++i) {
        rest.push_back(random_tokens(160, 64, 100 + static_cast<std::uint64_t>(i)));
        Session alone(model_, options);
        alone.read(text.first(kShared));
        if (change) change(alone);
        wanted.push_back(all_logits(alone, rest.back()));
      }
      on_every_thread("forks in threads of their own", [&](int i) {
        auto& session = sessions[static_cast<std::size_t>(i)];
        const std::span<const TokenId> mine = rest[static_cast<std::size_t>(i)];
        if (change) change(*session);
        std::vector<float> got;
        for (std::size_t at = 0; at < mine.size(); at += 20) {
          const auto rows = all_logits(*session, mine.subspan(at, 20));
          got.insert(got.end(), rows.begin(), rows.end());
          const Session grandchild = session->fork();
          EXPECT_EQ(grandchild.position(), session->position());
        }
        EXPECT_TRUE(same_bits(got, wanted[static_cast<std::size_t>(i)])) << "fork " << i;
        session.reset();
      });
    }
  }
  static SessionOptions plain() {
    SessionOptions options;
    options.threads = 1;
    options.prefill_chunk = 32;
    return options;
  }
  static SessionOptions procedural() {
    ProceduralOptions memory;
    memory.window = 64;
    memory.block = 32;
    memory.rows = 8;
    memory.summaries = 2;
    memory.levels = 2;
    SessionOptions options = plain();
    options.procedural = memory;
    return options;
  }
};

TEST_F(ForksInThreads, OfAMemoryThatKeepsEverything) { check(plain()); }

TEST_F(ForksInThreads, OfAMemoryThatIsCutAndGrows) {
  check(plain(), [](Session& session) {
    session.apply(Truncate{150});
    session.apply(Compact{160});
    session.apply(Expand{4096});
  });
}

TEST_F(ForksInThreads, OfARollingMemory) {
  SessionOptions options = plain();
  options.rolling = Rolling{4, 60};
  check(options);
}

TEST_F(ForksInThreads, OfAProceduralMemory) { check(procedural()); }

TEST_F(ForksInThreads, OfAMemoryThatSpillsIntoOneFile) {
  const TemporaryFolder folder;
  SessionOptions options = procedural();
  options.procedural->heads.kv_heads = 2;
  options.procedural->heads.needs.assign(4, HeadNeed{.induction = 1.0f});
  options.procedural->full_rows = 64;
  options.procedural->spill = folder.path("spill");
  check(options);
}

TEST_F(Threads, LookAtRowsThatTheirSessionForgets_UntilTheyLetGo) {
  SessionOptions options;
  options.threads = 1;
  options.prefill_chunk = 16;
  options.rolling = Rolling{4, 60};
  Session session(model_, options);
  session.read(std::span(text_).first(60));
  std::vector<std::function<void()>> bodies;
  for (int i = 0; i < kThreads; ++i)
    bodies.emplace_back(
        [view = std::make_shared<RowsView>(session.state().view(i % 2, KvPart::keys, {10, 50}))] {
          const auto rows_of = [&] {
            std::vector<std::byte> rows;
            for (int head = 0; head < view->kv_heads; ++head) {
              const std::byte* from = view->data + head * view->head_stride;
              rows.insert(rows.end(), from, from + view->positions.size() * view->row_bytes);
            }
            return rows;
          };
          const auto before = rows_of();
          for (int round = 0; round < 50; ++round) EXPECT_EQ(rows_of(), before);
          view->pin.reset();
        });
  bodies.emplace_back([&] {
    for (int round = 0; round < 10; ++round) session.read(std::span(text_).subspan(60, 100));
  });
  run_together("views and the session they look into", bodies);
  EXPECT_EQ(session.position(), 1060);
}

TEST_F(Threads, DriveStatefulModelsOfOneModel_AndForksOfOneState) {
  const Model model(KVTIDE_GOLDENS "/folders/gpt2-f32");
  SessionOptions options;
  options.threads = 2;
  const std::span<const TokenId> text = text_;
  const std::vector<std::int32_t> ones(64, 1);
  StatefulModel first(model, options);
  const auto answer = first.predict(text.first(40), std::span(ones).first(40));
  const std::vector<float> wanted(answer.begin(), answer.end());
  const NamedState state = first.state();
  const auto rows = state.read("keyCache");
  std::vector<NamedState> forks;
  for (int i = 0; i < kThreads; ++i) forks.push_back(state.fork());
  on_every_thread("stateful models", [&](int i) {
    StatefulModel stateful(model, options);
    EXPECT_TRUE(same_bits(stateful.predict(text.first(40), std::span(ones).first(40)), wanted));
    NamedState& fork = forks[static_cast<std::size_t>(i)];
    EXPECT_EQ(fork.read("keyCache"), rows);
    fork.append(3, [](const Row&) {});
    fork.apply(Truncate{40});
    EXPECT_EQ(fork.read("keyCache"), rows);
    stateful.set_state(fork, text.first(40));
    stateful.predict(text.subspan(40, 5), std::span(ones).first(45));
    EXPECT_EQ(stateful.past_length(), 45);
  });
  EXPECT_EQ(state.read("keyCache"), rows);
}

}  // namespace
}  // namespace kvtide
