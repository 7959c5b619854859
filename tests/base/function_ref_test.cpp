#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kvtide {
namespace {

int call_with_seven(FunctionRef<int(int)> function) { return function(7); }
int doubled(int x) { return 2 * x; }

TEST(FunctionRef, CallsALambdaWithItsCaptures) {
  int seen = 0;
  EXPECT_EQ(call_with_seven([&](int x) {
              seen = x;
              return x + 1;
            }),
            8);
  EXPECT_EQ(seen, 7);
}

TEST(FunctionRef, CallsAConstObjectAndAFunctionPointer) {
  const auto tripled = [](int x) { return 3 * x; };
  EXPECT_EQ(call_with_seven(tripled), 21);
  int (*pointer)(int) = doubled;
  EXPECT_EQ(call_with_seven(pointer), 14);
}

TEST(FunctionRef, RefersToTheObjectInsteadOfCopyingIt) {
  auto counter = [count = 0](int) mutable { return ++count; };
  const FunctionRef<int(int)> reference(counter);
  reference(0);
  reference(0);
  EXPECT_EQ(counter(0), 3);
}

TEST(FunctionRef, PassesMoveOnlyArgumentsOn) {
  auto take = [](std::unique_ptr<std::string> text) { return *text; };
  const FunctionRef<std::string(std::unique_ptr<std::string>)> reference(take);
  EXPECT_EQ(reference(std::make_unique<std::string>("moved in")), "moved in");
}

}  // namespace
}  // namespace kvtide
