// carried.h: sessions of models whose layers carry tensors from token to token.
#pragma once

#include <gtest/gtest.h>

#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/kernels/same_bits.h"

namespace kvtide::testing {

inline SessionOptions short_session() {
  SessionOptions options;
  options.context = 200;
  options.threads = 2;
  return options;
}

inline void expect_same_carried(const Session& a, const Session& b) {
  const auto got = a.state().carried(), wanted = b.state().carried();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(same_bits(got[i].values, wanted[i].values)) << got[i].name;
}

// Two texts read by one pass leave both sessions as they are after passes of their own.
inline void expect_passes_of_their_own(const Model& model) {
  Session first(model, short_session()), second(model, short_session());
  Session alone(model, short_session()), other(model, short_session());
  const auto a = random_tokens(13, model.vocabulary(), 21), b = random_tokens(29, model.vocabulary(), 22);
  Batch batch(model, {.threads = 2});
  const Batch::Item items[] = {{&first, a}, {&second, b}};
  for (const auto& outcome : batch.step(items)) ASSERT_FALSE(outcome.error);
  alone.read(a);
  other.read(b);
  EXPECT_TRUE(same_bits(first.logits(), alone.logits()));
  EXPECT_TRUE(same_bits(second.logits(), other.logits()));
  expect_same_carried(first, alone);
  expect_same_carried(second, other);
}

}  // namespace kvtide::testing
