// expect_refused.h: a call must throw an Error of one code whose message says what is wrong.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kvtide/error.h"

namespace kvtide::testing {

template <class Call>
void expect_refused(ErrorCode code, const std::string& says, Call call) {
  try {
    call();
    ADD_FAILURE() << "accepted, instead of saying: " << says;
  } catch (const Error& error) {
    EXPECT_STREQ(error_code_name(error.code()), error_code_name(code)) << error.message();
    EXPECT_NE(error.message().find(says), std::string::npos) << error.message() << "\nshould say: " << says;
  }
}

}  // namespace kvtide::testing
