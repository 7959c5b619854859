// Hosts that use a correct model of the engine wrongly: the same diagnosis on real architectures.
#include <gtest/gtest.h>

#include "kvtide/validate.h"
#include "tests/engine/npy.h"
#include "validate/engine_model.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

// Passes everything on; what a host gets wrong is in the classes below.
class Host : public TestedModel {
 public:
  explicit Host(EngineModel& engine) : engine_(engine) {}
  TestedShape shape() const override { return engine_.shape(); }
  std::unique_ptr<TestedState> make_state(std::int64_t capacity) override {
    auto made = std::make_unique<Held>();
    made->capacity = capacity;
    made->state = engine_.make_state(capacity);
    return made;
  }
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    return engine_.read(inner(state), tokens, inputs);
  }
  HeldRows rows(TestedState& state, int layer) override { return engine_.rows(inner(state), layer); }
  void truncate(TestedState& state, Pos length) override { engine_.truncate(inner(state), length); }
  std::unique_ptr<TestedState> fork(TestedState& state) override {
    return hold(state, engine_.fork(inner(state)));
  }
  std::unique_ptr<TestedState> through_snapshot(TestedState& state) override {
    return hold(state, engine_.through_snapshot(inner(state)));
  }
  void poison(TestedState& state, float value) override { engine_.poison(inner(state), value); }

 protected:
  struct Held final : TestedState {
    std::int64_t capacity = 0;
    std::unique_ptr<TestedState> state;
    std::shared_ptr<TestedState> shared;
  };
  static TestedState& inner(TestedState& state) {
    auto& held = static_cast<Held&>(state);
    return held.shared ? *held.shared : *held.state;
  }
  std::unique_ptr<TestedState> hold(TestedState& like, std::unique_ptr<TestedState> state) const {
    auto made = std::make_unique<Held>();
    made->capacity = static_cast<Held&>(like).capacity;
    made->state = std::move(state);
    return made;
  }
  EngineModel& engine_;
};

class NewStateForEveryCall final : public Host {
 public:
  using Host::Host;
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    auto& held = static_cast<Held&>(state);
    held.state = engine_.make_state(held.capacity);
    return engine_.read(*held.state, tokens, inputs);
  }
};

class LastSlotAgain final : public Host {
 public:
  using Host::Host;
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    const std::int64_t held = engine_.rows(inner(state), 0).rows,
                       capacity = static_cast<Held&>(state).capacity;
    if (held + static_cast<std::int64_t>(tokens.size()) > capacity)
      engine_.truncate(inner(state), capacity - 1);
    return engine_.read(inner(state), tokens, inputs);
  }
};

class ForkThatSharesAll final : public Host {
 public:
  using Host::Host;
  std::unique_ptr<TestedState> fork(TestedState& state) override {
    auto& held = static_cast<Held&>(state);
    if (!held.shared) held.shared = std::move(held.state);
    auto made = std::make_unique<Held>();
    made->capacity = held.capacity;
    made->shared = held.shared;
    return made;
  }
};

// The rows of a call land in the reverse order.
class CallsBackwards final : public Host {
 public:
  using Host::Host;
  HeldRows rows(TestedState& state, int layer) override {
    HeldRows out = Host::rows(state, layer);
    const HeldRows right = out;
    for (std::int64_t head = 0; head < out.kv_heads; ++head)
      for (std::int64_t row = 0; row + 1 < out.rows; row += 2)
        for (std::int64_t i = 0; i < 2; ++i) {
          const auto to = (head * out.rows + row + i) * out.head_dim,
                     from = (head * out.rows + row + 1 - i) * out.head_dim;
          std::copy_n(right.keys.begin() + from, out.head_dim, out.keys.begin() + to);
          std::copy_n(right.values.begin() + from, out.head_dim, out.values.begin() + to);
        }
    return out;
  }
};

template <class Wrapped>
Finding first_finding(const std::string& path) {
  auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ids.resize(21);
  const Model model(path);
  SessionOptions session;
  session.exact = true;
  session.threads = 1;
  EngineModel engine(model, session, 32);
  Wrapped host(engine);
  ThreadPool pool(1);
  PlainDecoder reference(path, pool);
  const ValidationReport report = validate(host, reference, ids);
  EXPECT_FALSE(report.passed) << path;
  return report.findings.empty() ? Finding{} : report.findings.front();
}

const std::string kPaths[] = {
    KVTIDE_GOLDENS "/models/llama-mha-untied.gguf", KVTIDE_GOLDENS "/models/qwen3-head-norms.gguf",
    KVTIDE_GOLDENS "/models/gemma3-window.gguf", KVTIDE_GOLDENS "/folders/gpt2-f32"};

TEST(ValidateWrapped, AStateMadeForEveryCallIsNamed) {
  for (const std::string& path : kPaths) {
    const Finding found = first_finding<NewStateForEveryCall>(path);
    // Learned positions show in the embedding already: every call begins at position 0.
    EXPECT_TRUE(found.cause == "state_recreated" || found.cause == "position_in_call")
        << path << ": " << found.what;
  }
}

TEST(ValidateWrapped, APositionThatStaysAtTheLastSlotIsNamed) {
  for (const std::string& path : kPaths) {
    const Finding found = first_finding<LastSlotAgain>(path);
    EXPECT_EQ(found.cause, "position_saturates") << path << ": " << found.what;
    EXPECT_EQ(found.token, 16) << path;
  }
}

TEST(ValidateWrapped, AForkThatSharesItsRowsIsNamed) {
  for (const std::string& path : kPaths) {
    const Finding found = first_finding<ForkThatSharesAll>(path);
    EXPECT_EQ(found.cause, "state_shared_between_sequences") << path << ": " << found.what;
    EXPECT_EQ(found.token, 11) << path;  // the copy has read a token before the original reads on
  }
}

TEST(ValidateWrapped, RowsThatChangedPlacesAreNamedWithBothSlots) {
  for (const std::string& path : kPaths) {
    const Finding found = first_finding<CallsBackwards>(path);
    EXPECT_EQ(found.cause, "write_slot") << path << ": " << found.what;
    EXPECT_EQ(found.layer, 0);
    EXPECT_NE(found.what.find("holds the rows of token"), std::string::npos) << found.what;
  }
}

}  // namespace
}  // namespace kvtide
