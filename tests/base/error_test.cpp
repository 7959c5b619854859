#include "kvtide/error.h"

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace kvtide {
namespace {

TEST(Error, CarriesItsCodeAndMessage_AlsoAsAStandardException) {
  const Error error(ErrorCode::context_full, "no room for 3 more tokens");
  EXPECT_EQ(error.code(), ErrorCode::context_full);
  EXPECT_EQ(error.message(), "no room for 3 more tokens");
  const std::exception& base = error;
  EXPECT_STREQ(base.what(), "no room for 3 more tokens");
}

TEST(Error, CodeNamesAreStable) {
  EXPECT_STREQ(error_code_name(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_STREQ(error_code_name(ErrorCode::not_found), "not_found");
  EXPECT_STREQ(error_code_name(ErrorCode::io), "io");
  EXPECT_STREQ(error_code_name(ErrorCode::bad_format), "bad_format");
  EXPECT_STREQ(error_code_name(ErrorCode::unsupported), "unsupported");
  EXPECT_STREQ(error_code_name(ErrorCode::bad_text), "bad_text");
  EXPECT_STREQ(error_code_name(ErrorCode::context_full), "context_full");
  EXPECT_STREQ(error_code_name(ErrorCode::out_of_memory), "out_of_memory");
  EXPECT_STREQ(error_code_name(ErrorCode::numeric), "numeric");
  EXPECT_STREQ(error_code_name(ErrorCode::cancelled), "cancelled");
}

}  // namespace
}  // namespace kvtide
