// Batch: several sessions in one pass, each with the bits that it would have alone.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::expect_refused;
using testing::random_tokens;
using testing::same_bits;

class BatchTest : public ::testing::Test {
 protected:
  static testing::SampleModel sample() {
    testing::SampleModel out;
    out.types = {DType::q8_0, DType::q4_1};
    return out;
  }
  static SessionOptions plain() {
    SessionOptions options;
    options.threads = 1;
    options.context = 200;
    options.prefill_chunk = 32;
    return options;
  }
  static SessionOptions rolling() {
    SessionOptions options = plain();
    options.rolling = Rolling{2, 40};
    return options;
  }
  static SessionOptions procedural() {
    SessionOptions options = plain();
    ProceduralOptions& o = options.procedural.emplace();
    o.window = 64;
    o.block = 32;
    o.rows = 8;
    o.summaries = 2;
    o.levels = 2;
    return options;
  }
  static BatchOptions threads(int n) {
    BatchOptions options;
    options.threads = n;
    return options;
  }

  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model(sample()).build().bytes};
  const Model model_{file_.path()};
};

// A text, and the logits behind each of its tokens when a session reads it alone.
struct Text {
  std::vector<TokenId> tokens;
  std::vector<float> wanted;
  Session session;
  std::size_t done = 0;

  Text(const Model& model, const SessionOptions& options, std::size_t length, std::uint64_t seed)
      : tokens(random_tokens(length, 64, seed)),
        wanted(testing::all_logits(model, options, tokens)),
        session(model, options) {}
  std::span<const TokenId> next(std::size_t count) const {
    return std::span(tokens).subspan(done, std::min(count, tokens.size() - done));
  }
  std::span<const float> row() const { return std::span(wanted).subspan((done - 1) * 64, 64); }
};

TEST_F(BatchTest, GivesEverySessionItsOwnBits_WhateverItsNeighboursDo) {
  for (const int count : {1, 2, 3}) {
    std::vector<std::unique_ptr<Text>> texts;
    for (std::uint64_t i = 0; i < 9; ++i)
      texts.push_back(std::make_unique<Text>(model_,
                                             i % 3 == 0   ? plain()
                                             : i % 3 == 1 ? rolling()
                                                          : procedural(),
                                             60 + 15 * i, i));
    Batch batch(model_, threads(count));
    testing::Rng rng(5);
    // The procedural ones seal blocks on the way. Sessions read chunks of 1 to 30 tokens, rest, join late and end at different times.
    for (int step = 0; step < 400; ++step) {
      std::vector<Batch::Item> items;
      std::vector<Text*> readers;
      for (auto& text : texts) {
        if (text->done == text->tokens.size() || rng.below(4) == 0) continue;
        const auto size = static_cast<std::size_t>(rng.below(3) == 0 ? 1 + rng.below(30) : 1);
        items.push_back({&text->session, text->next(size), rng.below(5) != 0});
        readers.push_back(text.get());
      }
      const auto outcomes = batch.step(items);
      for (std::size_t i = 0; i < items.size(); ++i) {
        ASSERT_FALSE(outcomes[i].error) << outcomes[i].error->message();
        ASSERT_GT(outcomes[i].read, 0);
        const auto read = static_cast<std::size_t>(outcomes[i].read);
        readers[i]->done += read;
        const auto logits = readers[i]->session.logits();
        if (items[i].need_logits && read == items[i].tokens.size())
          ASSERT_TRUE(same_bits(logits, readers[i]->row())) << "session " << i << ", step " << step;
        else
          ASSERT_TRUE(logits.empty());
      }
    }
    for (const auto& text : texts) {
      EXPECT_EQ(text->done, text->tokens.size()) << "the text was read to its end";
      EXPECT_EQ(text->session.tokens(), text->tokens);
    }
  }
}

TEST_F(BatchTest, ASessionGoesOnAloneAfterIt_AndItsForkToo) {
  Text text(model_, plain(), 50, 1), other(model_, rolling(), 50, 2);
  Batch batch(model_, threads(2));
  const Batch::Item items[] = {{&text.session, text.next(20)}, {&other.session, other.next(30)}};
  for (const auto& outcome : batch.step(items)) ASSERT_FALSE(outcome.error);
  Session fork = text.session.fork();
  text.done = 20;
  for (Session* session : {&text.session, &fork}) {
    session->read(text.next(30));
    EXPECT_TRUE(same_bits(session->logits(), std::span(text.wanted).last(64)));
  }
}

TEST_F(BatchTest, WhatOneSessionCannotDoStopsNoOther) {
  Text good(model_, plain(), 60, 1), full(model_, plain(), 200, 2), bad(model_, plain(), 20, 3);
  full.session.read(full.tokens);
  bad.session.read(bad.next(10));
  const std::vector<TokenId> wrong = {1, 64};
  const std::vector<float> before(bad.session.logits().begin(), bad.session.logits().end());
  Batch batch(model_, threads(2));
  const std::vector<TokenId> long_text = random_tokens(33, 64, 4);
  Text chunked(model_, plain(), 60, 5);
  const Batch::Item items[] = {{&full.session, full.next(1)},
                               {&good.session, good.next(20)},
                               {&bad.session, wrong},
                               {&chunked.session, long_text}};
  const auto outcomes = batch.step(items);
  ASSERT_EQ(outcomes.size(), 4u);
  ASSERT_TRUE(outcomes[0].error);
  EXPECT_EQ(outcomes[0].error->code(), ErrorCode::context_full);
  EXPECT_EQ(outcomes[1].read, 20);
  ASSERT_TRUE(outcomes[2].error);
  EXPECT_EQ(outcomes[2].error->code(), ErrorCode::invalid_argument);
  EXPECT_EQ(outcomes[2].read, 0);
  EXPECT_EQ(outcomes[3].read, 32) << "its prefill_chunk";
  good.done = 20;
  EXPECT_TRUE(same_bits(good.session.logits(), good.row()));
  EXPECT_EQ(bad.session.position(), 10);
  EXPECT_TRUE(same_bits(bad.session.logits(), before));
  EXPECT_EQ(full.session.position(), 200);
}

TEST_F(BatchTest, RefusesWhatDoesNotBelongIntoOneStep_AndChangesNothing) {
  Text a(model_, plain(), 60, 1), b(model_, plain(), 60, 2);
  SessionOptions exact = plain();
  exact.exact = true;
  Text c(model_, exact, 60, 3);
  const Model twin(file_.path());
  Session stranger(twin, plain());
  BatchOptions options = threads(1);
  options.max_step = 8;
  Batch batch(model_, options);
  const auto refused = [&](std::vector<Batch::Item> items, const std::string& says) {
    expect_refused(ErrorCode::invalid_argument, says, [&] { batch.step(items); });
  };
  refused({{&a.session, a.next(1)}, {&a.session, a.next(1)}}, "sessions 0 and 1 are one");
  refused({{&a.session, a.next(1)}, {&stranger, a.next(1)}}, "another model");
  refused({{&a.session, a.next(1)}, {&c.session, c.next(1)}}, "exact");
  refused({{&a.session, a.next(1)}, {&b.session, {}}}, "no tokens");
  refused({{&a.session, a.next(4)}, {&b.session, b.next(5)}}, "at most 8");
  for (const Session* session : {&a.session, &b.session, &c.session}) EXPECT_EQ(session->position(), 0);
  EXPECT_TRUE(batch.step({}).empty());
  EXPECT_GE(Batch(model_).options().threads, 1);
  options.max_step = 0;
  expect_refused(ErrorCode::invalid_argument, "at least 1", [&] { const Batch none(model_, options); });
}

}  // namespace
}  // namespace kvtide
