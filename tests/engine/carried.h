// carried.h: sessions of models whose layers carry tensors from token to token.
#pragma once

#include <gtest/gtest.h>

#include "kvtide/session.h"
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

}  // namespace kvtide::testing
