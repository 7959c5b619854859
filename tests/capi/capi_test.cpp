// kvtide.h as a program in C uses it: results, messages, and handles that were never made.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kvtide/kvtide.h"
#include "tests/formats/temporary_folder.h"

namespace {

using kvtide::testing::TemporaryFolder;

const std::string kModels = KVTIDE_GOLDENS "/models/";
const std::string kText = "the tide came in and the sand was dark";

class CInterfaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(kvtide_model_load((kModels + "llama-mha-untied.gguf").c_str(), &model_), KVTIDE_OK);
    tokens_.resize(
        static_cast<std::size_t>(kvtide_encode(model_, kText.data(), kText.size(), false, nullptr, 0)));
    ASSERT_EQ(kvtide_encode(model_, kText.data(), kText.size(), false, tokens_.data(), tokens_.size()),
              static_cast<int64_t>(tokens_.size()));
  }
  void TearDown() override { kvtide_model_free(model_); }

  kvtide_session* session(std::int64_t context = 0) {
    kvtide_session_options options = kvtide_session_defaults();
    options.context = context;
    options.threads = 1;
    kvtide_session* made = nullptr;
    EXPECT_EQ(kvtide_session_new(model_, &options, &made), KVTIDE_OK) << kvtide_session_error(made);
    return made;
  }
  int32_t read(kvtide_session* s) {
    return kvtide_session_read(s, tokens_.data(), tokens_.size(), nullptr, nullptr);
  }
  static std::vector<float> logits(kvtide_session* s) {
    const float* at = nullptr;
    const std::int64_t count = kvtide_session_logits(s, &at);
    return count > 0 ? std::vector<float>(at, at + count) : std::vector<float>();
  }

  kvtide_model* model_ = nullptr;
  std::vector<int32_t> tokens_;
};

TEST_F(CInterfaceTest, TextBecomesTokensAndTokensBecomeText_AsFarAsThereIsRoom) {
  const std::int64_t size = kvtide_decode(model_, tokens_.data(), tokens_.size(), nullptr, 0);
  std::string text(static_cast<std::size_t>(size), '?');
  EXPECT_EQ(kvtide_decode(model_, tokens_.data(), tokens_.size(), text.data(), 4), size);
  EXPECT_EQ(text.substr(0, 5), kText.substr(0, 4) + "?");
  kvtide_decode(model_, tokens_.data(), tokens_.size(), text.data(), text.size());
  EXPECT_EQ(text, kText);
  EXPECT_EQ(kvtide_model_vocabulary(model_), 64);
  EXPECT_EQ(kvtide_model_context_length(model_), 256);
  EXPECT_EQ(kvtide_encode(model_, "\xff", 1, false, nullptr, 0), KVTIDE_BAD_TEXT);
  EXPECT_NE(std::string(kvtide_model_error(model_)), "");
  EXPECT_GE(kvtide_encode(model_, nullptr, 0, false, nullptr, 0), 0);
  EXPECT_STREQ(kvtide_model_error(model_), "");
}

TEST_F(CInterfaceTest, AMemoryIsResizedForkedSavedAndLoaded) {
  const TemporaryFolder folder;
  const std::string path = folder.path("text.kv");
  const auto count = static_cast<std::int64_t>(tokens_.size());
  kvtide_session* s = session(count - 1);
  EXPECT_EQ(read(s), KVTIDE_CONTEXT_FULL);
  kvtide_record record;
  ASSERT_EQ(kvtide_session_apply(s, {KVTIDE_EXPAND, 100, 0}, &record), KVTIDE_OK);
  EXPECT_EQ(record.capacity_before, count - 1);
  EXPECT_EQ(record.capacity_after, 100);
  ASSERT_EQ(read(s), KVTIDE_OK);
  const std::vector<float> wanted = logits(s);
  ASSERT_EQ(wanted.size(), 64u);

  EXPECT_EQ(kvtide_session_plan(s, {KVTIDE_COMPACT, 5, 0}, &record), KVTIDE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(kvtide_session_error(s)).find("are in use"), std::string::npos);
  kvtide_session* forked = nullptr;
  ASSERT_EQ(kvtide_session_fork(s, &forked), KVTIDE_OK);
  ASSERT_EQ(kvtide_session_save(s, path.c_str()), KVTIDE_OK);
  ASSERT_EQ(kvtide_session_apply(s, {KVTIDE_TRUNCATE, 3, 0}, nullptr), KVTIDE_OK);
  EXPECT_TRUE(logits(s).empty());
  int32_t token = -7;
  EXPECT_EQ(kvtide_session_greedy(s, &token), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(token, -7);
  EXPECT_EQ(logits(forked), wanted);
  ASSERT_EQ(kvtide_session_load(s, path.c_str()), KVTIDE_OK);
  EXPECT_EQ(logits(s), wanted);

  kvtide_state *kept = nullptr, *loaded = nullptr;
  ASSERT_EQ(kvtide_session_state(s, &kept), KVTIDE_OK);
  ASSERT_EQ(kvtide_state_load(path.c_str(), &loaded), KVTIDE_OK);
  kvtide_session_free(s);
  for (kvtide_state* state : {kept, loaded}) {
    ASSERT_EQ(kvtide_session_clear(forked), KVTIDE_OK);
    ASSERT_EQ(kvtide_session_restore(forked, state), KVTIDE_OK) << kvtide_session_error(forked);
    EXPECT_EQ(logits(forked), wanted);
    std::vector<int32_t> held(tokens_.size());
    EXPECT_EQ(kvtide_state_tokens(state, held.data(), held.size()), count);
    EXPECT_EQ(held, tokens_);
  }
  // Handles are freed in any order: the model goes before the session that uses it.
  kvtide_model_free(model_);
  model_ = nullptr;
  EXPECT_EQ(read(forked), KVTIDE_OK);
  kvtide_session_free(forked);
  kvtide_state_free(kept);
  kvtide_state_free(loaded);
}

TEST_F(CInterfaceTest, ARollingMemoryGoesBackToACheckpoint) {
  kvtide_session_options options = kvtide_session_defaults();
  EXPECT_EQ(options.checkpoint_every, 0);
  EXPECT_EQ(options.checkpoint_budget, std::int64_t{64} << 20);
  options.context = 30;
  options.sinks = 2;
  options.window = 20;
  options.checkpoint_every = 128;
  kvtide_session* s = nullptr;
  ASSERT_EQ(kvtide_session_new(model_, &options, &s), KVTIDE_OK);
  std::int64_t count = 0;
  for (; count < 700; count += static_cast<std::int64_t>(tokens_.size())) ASSERT_EQ(read(s), KVTIDE_OK);
  EXPECT_EQ(kvtide_session_checkpoint(s), 1);
  const std::int64_t checkpoints = kvtide_session_checkpoints(s, nullptr, 0);
  EXPECT_EQ(checkpoints, count / 128 + (count % 128 != 0));
  std::int64_t first[2] = {}, again = -1;
  EXPECT_EQ(kvtide_session_checkpoints(s, first, 2), checkpoints);
  EXPECT_EQ(first[1], 256);
  EXPECT_EQ(kvtide_session_apply(s, {KVTIDE_TRUNCATE, 300, 0}, nullptr), KVTIDE_INVALID_ARGUMENT);
  ASSERT_EQ(kvtide_session_truncate(s, 300, &again), KVTIDE_OK);
  EXPECT_EQ(again, 44);
  ASSERT_EQ(kvtide_session_apply(s, {KVTIDE_TRUNCATE_NEAREST, 180, 0}, nullptr), KVTIDE_OK);
  kvtide_numbers numbers;
  ASSERT_EQ(kvtide_session_numbers(s, &numbers), KVTIDE_OK);
  EXPECT_EQ(numbers.position, 128);
  EXPECT_EQ(kvtide_session_truncate(s, 129, nullptr), KVTIDE_INVALID_ARGUMENT);
  kvtide_session_free(s);
}

TEST_F(CInterfaceTest, AReadingThatItsCallbackStops_IsCancelled) {
  kvtide_session* s = session();
  std::int64_t seen = 0;
  const auto stop = [](void* context, std::int64_t done, std::int64_t of) {
    *static_cast<std::int64_t*>(context) = done * 1000 + of;
    return false;
  };
  EXPECT_EQ(kvtide_session_read(s, tokens_.data(), tokens_.size(), stop, &seen), KVTIDE_CANCELLED);
  EXPECT_EQ(seen, static_cast<std::int64_t>(tokens_.size()) * 1001);
  kvtide_session_free(s);
}

TEST_F(CInterfaceTest, AHandleThatCouldNotBeMade_SaysWhy_AndNothingElseCanBeDoneWithIt) {
  kvtide_model* none = nullptr;
  EXPECT_EQ(kvtide_model_load("no-such-model.gguf", &none), KVTIDE_NOT_FOUND);
  ASSERT_NE(none, nullptr);
  EXPECT_NE(std::string(kvtide_model_error(none)).find("no-such-model.gguf"), std::string::npos);
  EXPECT_EQ(kvtide_model_vocabulary(none), KVTIDE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(kvtide_model_error(none)).find("no-such-model.gguf"), std::string::npos);
  kvtide_session* s = nullptr;
  EXPECT_EQ(kvtide_session_new(none, nullptr, &s), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_clear(s), KVTIDE_INVALID_ARGUMENT);
  kvtide_session_free(s);
  kvtide_model_free(none);
  kvtide_state* state = nullptr;
  EXPECT_EQ(kvtide_state_load("no-such-state.kv", &state), KVTIDE_NOT_FOUND);
  kvtide_state* forked = nullptr;
  EXPECT_EQ(kvtide_state_fork(state, &forked), KVTIDE_INVALID_ARGUMENT);
  kvtide_state_free(forked);
  kvtide_state_free(state);
}

TEST_F(CInterfaceTest, NullPointersAreRefused) {
  kvtide_session* s = session();
  kvtide_model* none = nullptr;
  EXPECT_EQ(kvtide_model_load(nullptr, &none), KVTIDE_INVALID_ARGUMENT);
  EXPECT_STREQ(kvtide_model_error(none), "path is NULL");
  kvtide_model_free(none);
  EXPECT_EQ(kvtide_model_load("x", nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_read(s, nullptr, 3, nullptr, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_read(s, nullptr, 0, nullptr, nullptr), KVTIDE_OK);
  EXPECT_EQ(kvtide_session_logits(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_greedy(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_save(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_load(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_numbers(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_restore(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_state(s, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_clear(nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_state_save(nullptr, "x"), KVTIDE_INVALID_ARGUMENT);
  EXPECT_STREQ(kvtide_session_error(nullptr), "there is no handle");
  EXPECT_STREQ(kvtide_state_error(nullptr), "there is no handle");
  kvtide_session_free(nullptr);
  kvtide_state_free(nullptr);
  kvtide_model_free(nullptr);
  kvtide_session_free(s);
}

TEST_F(CInterfaceTest, OptionsOfAnotherSizeOrKindAreRefused) {
  kvtide_session* s = nullptr;
  kvtide_session_options options = kvtide_session_defaults();
  options.size = 8;
  EXPECT_EQ(kvtide_session_new(model_, &options, &s), KVTIDE_INVALID_ARGUMENT);
  kvtide_session_free(s);
  options = kvtide_session_defaults();
  options.key_type = 9;
  EXPECT_EQ(kvtide_session_new(model_, &options, &s), KVTIDE_INVALID_ARGUMENT);
  EXPECT_STREQ(kvtide_session_error(s), "there is no kvtide_kv_type 9");
  kvtide_session_free(s);
  s = session();
  EXPECT_EQ(kvtide_session_apply(s, {7, 0, 0}, nullptr), KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_session_apply(s, {-1, 0, 0}, nullptr), KVTIDE_INVALID_ARGUMENT);
  kvtide_session_free(s);
}

kvtide_state* small_state(std::int64_t position) {
  static const kvtide_layer layers[] = {{2, 4, 0}, {2, 4, 8}};
  const kvtide_shape shape{sizeof shape, layers, 2, KVTIDE_F32, KVTIDE_F16, 32};
  kvtide_state* state = nullptr;
  EXPECT_EQ(kvtide_state_new(&shape, position, nullptr, &state), KVTIDE_OK) << kvtide_state_error(state);
  return state;
}

TEST(CState, RowsAreWrittenReadAndCutBack) {
  kvtide_state* state = small_state(10);
  std::vector<float> rows(2 * 10 * 4), back(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i) - 40.0f;
  ASSERT_EQ(kvtide_state_write(state, 1, KVTIDE_VALUES, 0, 10, rows.data(), rows.size()), KVTIDE_OK);
  ASSERT_EQ(kvtide_state_read(state, 1, KVTIDE_VALUES, 0, 10, back.data(), back.size()), KVTIDE_OK);
  EXPECT_EQ(back, rows);
  kvtide_numbers numbers;
  ASSERT_EQ(kvtide_state_numbers(state, &numbers), KVTIDE_OK);
  EXPECT_EQ(numbers.position, 10);
  EXPECT_EQ(numbers.capacity, 32);
  EXPECT_EQ(numbers.attention_size, 0);
  kvtide_layer layer;
  EXPECT_EQ(kvtide_state_layers(state), 2);
  ASSERT_EQ(kvtide_state_layer(state, 1, &layer), KVTIDE_OK);
  EXPECT_EQ(layer.window, 8);
  EXPECT_EQ(kvtide_state_layer(state, 2, &layer), KVTIDE_INVALID_ARGUMENT);

  kvtide_state* forked = nullptr;
  ASSERT_EQ(kvtide_state_fork(state, &forked), KVTIDE_OK);
  EXPECT_EQ(kvtide_state_write(state, 1, KVTIDE_VALUES, 0, 10, rows.data(), rows.size()),
            KVTIDE_INVALID_ARGUMENT);
  kvtide_record record;
  ASSERT_EQ(kvtide_state_apply(forked, {KVTIDE_CLOSE_GAP, 2, 5}, &record), KVTIDE_OK);
  EXPECT_EQ(record.rows_dropped, 3);
  ASSERT_EQ(kvtide_state_apply(forked, {KVTIDE_ATTENTION, 4, 0}, nullptr), KVTIDE_OK);
  ASSERT_EQ(kvtide_state_plan(forked, {KVTIDE_EXPAND, 64, 0}, &record), KVTIDE_OK);
  EXPECT_EQ(record.capacity_after, 64);
  ASSERT_EQ(kvtide_state_numbers(forked, &numbers), KVTIDE_OK);
  EXPECT_EQ(numbers.attention_size, 4);
  EXPECT_EQ(numbers.capacity, 32);
  kvtide_state_free(forked);

  ASSERT_EQ(kvtide_state_apply(state, {KVTIDE_TRUNCATE, 5, 0}, nullptr), KVTIDE_OK);
  ASSERT_EQ(kvtide_state_read(state, 1, KVTIDE_VALUES, 0, 10, back.data(), back.size()), KVTIDE_OK);
  EXPECT_EQ(back[4 * 4 + 3], rows[4 * 4 + 3]);
  EXPECT_EQ(back[5 * 4], 0.0f);
  kvtide_state_free(state);
}

TEST(CState, NumbersThatMakeNoSense_AreRefused) {
  kvtide_state* state = small_state(10);
  std::vector<float> rows(2 * 10 * 4);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 11},
                                    {-1, 9},
                                    {5, 5},
                                    {kLeast, kMost},
                                    {kMost, kLeast},
                                    {0, kMost},
                                    {kLeast, 0}}) {
    EXPECT_EQ(kvtide_state_read(state, 0, KVTIDE_KEYS, first, last, rows.data(), rows.size()),
              KVTIDE_INVALID_ARGUMENT);
    EXPECT_EQ(kvtide_state_write(state, 0, KVTIDE_KEYS, first, last, rows.data(), rows.size()),
              KVTIDE_INVALID_ARGUMENT);
    EXPECT_EQ(kvtide_state_apply(state, {KVTIDE_DROP, first, last}, nullptr), KVTIDE_INVALID_ARGUMENT);
  }
  EXPECT_EQ(kvtide_state_read(state, std::int64_t{1} << 40, KVTIDE_KEYS, 0, 10, rows.data(), rows.size()),
            KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(kvtide_state_read(state, 0, 2, 0, 10, rows.data(), rows.size()), KVTIDE_INVALID_ARGUMENT);
  rows[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(kvtide_state_write(state, 0, KVTIDE_KEYS, 0, 10, rows.data(), rows.size()), KVTIDE_NUMERIC);
  kvtide_state_free(state);

  kvtide_state* none = nullptr;
  kvtide_shape shape{};
  EXPECT_EQ(kvtide_state_new(&shape, 0, nullptr, &none), KVTIDE_INVALID_ARGUMENT);
  kvtide_state_free(none);
  shape.size = sizeof shape;
  shape.layer_count = 5;
  EXPECT_EQ(kvtide_state_new(&shape, 0, nullptr, &none), KVTIDE_INVALID_ARGUMENT);
  EXPECT_STREQ(kvtide_state_error(none), "layers is NULL");
  kvtide_state_free(none);
}

TEST(CArray, GrowsAndShrinks_AndTellsWhyNot) {
  const std::vector<std::uint16_t> source = {1, 2, 3, 4, 5, 6};
  std::vector<std::uint16_t> target(10, 99);
  const kvtide_array from{const_cast<std::uint16_t*>(source.data()), {2, 1, 3, 1}};
  const kvtide_array to{target.data(), {2, 1, 5, 1}};
  const std::uint16_t pad = 7;
  kvtide_record record;
  ASSERT_EQ(kvtide_array_expand(&from, &to, 2, 2, &pad, &record, nullptr, 0), KVTIDE_OK);
  EXPECT_EQ(target, (std::vector<std::uint16_t>{1, 2, 7, 7, 7, 4, 5, 7, 7, 7}));
  EXPECT_EQ(record.rows_kept, 2);
  ASSERT_EQ(kvtide_array_expand(&from, &to, 2, -1, nullptr, nullptr, nullptr, 0), KVTIDE_OK);
  EXPECT_EQ(target, (std::vector<std::uint16_t>{1, 2, 3, 0, 0, 4, 5, 6, 0, 0}));
  std::vector<std::uint16_t> small(4, 99);
  const kvtide_array less{small.data(), {2, 1, 2, 1}};
  std::array<char, 24> message{};
  EXPECT_EQ(kvtide_array_compact(&to, &less, 2, 3, nullptr, message.data(), message.size()),
            KVTIDE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(message.data()).size(), 23u);  // cut, and ended
  EXPECT_EQ(small, std::vector<std::uint16_t>(4, 99));
  ASSERT_EQ(kvtide_array_compact(&to, &less, 2, 1, nullptr, message.data(), message.size()), KVTIDE_OK);
  EXPECT_STREQ(message.data(), "");
  EXPECT_EQ(small, (std::vector<std::uint16_t>{1, 0, 4, 0}));

  const kvtide_array vast{target.data(), {std::int64_t{1} << 40, 1 << 20, 1 << 20, 1}};
  const kvtide_array negative{target.data(), {2, 1, -5, 1}};
  const kvtide_array nothing{nullptr, {2, 1, 5, 1}};
  for (const kvtide_array* wrong : {&vast, &negative, &nothing, static_cast<const kvtide_array*>(nullptr)})
    EXPECT_EQ(kvtide_array_expand(&from, wrong, 2, 1, nullptr, nullptr, nullptr, 0), KVTIDE_INVALID_ARGUMENT);
  for (const std::size_t size : {std::size_t{0}, std::size_t{65}})
    EXPECT_EQ(kvtide_array_expand(&from, &to, size, 1, nullptr, nullptr, nullptr, 0),
              KVTIDE_INVALID_ARGUMENT);
}

TEST(CErrors, EveryResultHasAName) {
  EXPECT_STREQ(kvtide_error_name(KVTIDE_OK), "ok");
  EXPECT_STREQ(kvtide_error_name(512), "ok");
  EXPECT_STREQ(kvtide_error_name(KVTIDE_BAD_FORMAT), "bad_format");
  EXPECT_STREQ(kvtide_error_name(KVTIDE_CANCELLED), "cancelled");
  EXPECT_STREQ(kvtide_error_name(KVTIDE_INTERNAL), "internal");
  EXPECT_STREQ(kvtide_error_name(-1000), "internal");
  EXPECT_EQ(kvtide_api_version(), 1000 * KVTIDE_API_MAJOR + KVTIDE_API_MINOR);
}

}  // namespace
