// States without a session, when memory ends: public states, named tensors, dense arrays and masks.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "kvtide/masks.h"
#include "kvtide/named_state.h"
#include "kvtide/state.h"
#include "kvtide/state_transition.h"
#include "tests/faults/every_allocation.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

using testing::fail_every_allocation;
using testing::TemporaryFolder;
using testing::Trial;

StateShape small_shape() {
  StateShape shape;
  shape.layers = {{2, 16, std::nullopt}, {2, 16, 12}, {1, 16, std::nullopt}};
  shape.capacity = 64;
  shape.slack = 4;
  return shape;
}

std::vector<float> ramp(std::size_t count, float from) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = from + 0.25f * static_cast<float>(i % 64);
  return values;
}

// Everything that a state holds, as text.
std::string contents(const State& state) {
  std::string text = std::to_string(state.position()) + " of " + std::to_string(state.capacity()) + ":";
  for (const TokenId token : state.tokens()) text += " " + std::to_string(token);
  for (int layer = 0; layer < static_cast<int>(state.shape().layers.size()); ++layer)
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      const StateLayer l = state.shape().layers[static_cast<std::size_t>(layer)];
      std::vector<float> rows(static_cast<std::size_t>(l.kv_heads * state.position() * l.head_dim));
      state.read(layer, part, {0, state.position()}, rows);
      for (const PosRange& run : state.runs(layer))
        text += " [" + std::to_string(run.first) + ", " + std::to_string(run.last) + ")";
      text += std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
    }
  return text;
}

void fill(State& state) {
  for (int layer = 0; layer < 3; ++layer)
    for (const KvPart part : {KvPart::keys, KvPart::values})
      for (const PosRange& run : state.runs(layer))
        state.write(layer, part, run,
                    ramp(static_cast<std::size_t>((layer == 2 ? 1 : 2) * 16 * run.size()), 0.5f));
}

class States : public ::testing::Test {
 protected:
  void make() {
    state_.emplace(small_shape(), 40, tokens_);
    fill(*state_);
    state_->apply(Drop{{10, 14}, false});
    given_ = tokens_;
  }
  void destroy() {
    other_.reset();
    state_.reset();
    given_ = std::vector<TokenId>();
  }
  // A trial of something that changes, or leaves, state_.
  Trial trial(const std::string& name, std::function<void()> run) {
    Trial t;
    t.name = name;
    t.make = [this] { make(); };
    t.run = std::move(run);
    t.look = [this] { return contents(*state_); };
    t.end = [this] { return contents(*state_) + (other_ ? contents(*other_) : ""); };
    t.destroy = [this] { destroy(); };
    return t;
  }

  const std::vector<TokenId> tokens_ = std::vector<TokenId>(40, 7);
  std::vector<TokenId> given_;
  std::optional<State> state_, other_;
};

TEST_F(States, AreMadeForkedSavedAndLoadedOrMemoryEnded) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state.kv");
  const StateShape shape = small_shape();
  fail_every_allocation(trial("a state of rows", [&] {
    if (given_.empty()) given_ = tokens_;  // a fault may have taken them along
    other_.emplace(shape, 40, std::move(given_));
  }));
  fail_every_allocation(trial("fork a state", [&] { other_.emplace(state_->fork()); }));
  fail_every_allocation(trial("save a state", [&] { state_->save(path); }));
  fail_every_allocation(trial("load a state", [&] { other_.emplace(State::load(path)); }));
}

TEST_F(States, AreChangedInEveryLayerOrInNone) {
  bool done = false;
  for (const Transition& change :
       {Transition(Expand{100}), Transition(Compact{40}), Transition(Truncate{38}),
        Transition(Drop{{20, 25}, false}), Transition(Drop{{20, 25}, true}), Transition(SetAttention{9})}) {
    Trial t = trial(std::string("a state: ") + transition_name(change), [&] {
      if (!done) state_->apply(change);
      done = true;
    });
    t.make = [&] {
      done = false;
      make();
      other_.emplace(state_->fork());  // rows that others see are forgotten in another way
    };
    fail_every_allocation(t);
  }
  const std::vector<float> rows = ramp(2 * 16 * 10, -3.0f);
  fail_every_allocation(trial("write rows of a state", [&] {
    state_->write(0, KvPart::keys, {20, 30}, rows);
  }));
}

TEST_F(States, GoBackToACheckpointOrStayWhereTheyAre) {
  bool made = false;
  Trial t = trial("a state: a checkpoint", [&] { made = state_->checkpoint(); });
  t.make = [this] {
    state_.emplace(small_shape(), 40, tokens_);
    fill(*state_);
    other_.emplace(state_->fork());
  };
  t.look = [this] { return contents(*state_) + std::to_string(state_->checkpoints().size()); };
  t.end = [&] { return t.look() + (made ? " made" : " not made"); };
  fail_every_allocation(t);
  bool done = false;
  t.name = "a state: truncate to the nearest";
  t.run = [&] {
    if (!done) state_->apply(Truncate{30, true});
    done = true;
  };
  t.make = [&] {
    done = false;
    StateShape shape = small_shape();
    shape.rolling = Rolling{2, 38};
    state_.emplace(shape, 40, tokens_);
    fill(*state_);
    state_->checkpoint();
  };
  fail_every_allocation(t);
}

class NamedStates : public ::testing::Test {
 protected:
  static StateSpec spec() {
    StateSpec spec = per_layer_spec({.layers = 2, .kv_heads = 2, .capacity = 48, .head_dim = 16});
    spec.tensors.push_back({"conv", TensorRole::recurrent, {4, 4}, ElementType::f32});
    spec.tensors.push_back({"length", TensorRole::position, {1}, ElementType::i32});
    spec.slack = 3;
    return spec;
  }
  static void fill(const Row& row) {
    std::fill(row.key.begin(), row.key.end(), static_cast<float>(row.layer * 100 + row.token));
    std::fill(row.value.begin(), row.value.end(), static_cast<float>(row.kv_head * 10 + row.token));
  }
  void make() {
    state_.emplace(make_state(spec()));
    state_->append(8, fill);
    state_->append(2, fill);
    state_->write_recurrent("conv", std::as_bytes(std::span(carried_)));
  }
  static std::string contents(const NamedState& state) {
    std::string text = std::to_string(state.position()) + " of " + std::to_string(state.capacity());
    for (const TensorSpec& tensor : state.spec().tensors) {
      const auto bytes = state.read(tensor.name);
      text += " " + tensor.name + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return text;
  }
  Trial trial(const std::string& name, std::function<void()> run) {
    Trial t;
    t.name = "named: " + name;
    t.make = [this] { make(); };
    t.run = std::move(run);
    t.look = [this] { return contents(*state_); };
    t.end = [this] { return contents(*state_) + (other_ ? contents(*other_) : ""); };
    t.destroy = [this] {
      other_.reset();
      state_.reset();
    };
    return t;
  }

  const std::vector<float> carried_ = ramp(16, 1.0f);
  std::optional<NamedState> state_, other_;
};

TEST_F(NamedStates, AreMadeForkedSavedAndLoadedOrMemoryEnded) {
  const TemporaryFolder folder;
  const std::string path = folder.path("named.kv");
  const StateSpec wanted = spec();
  fail_every_allocation(trial("make", [&] { other_.emplace(make_state(wanted)); }));
  fail_every_allocation(trial("fork", [&] { other_.emplace(state_->fork()); }));
  fail_every_allocation(trial("save", [&] { state_->save(path); }));
  fail_every_allocation(trial("load", [&] { state_->load(path); }));
}

TEST_F(NamedStates, AreChangedInAllTensorsOrInNone) {
  const std::vector<float> numbers = ramp(16, 2.0f);
  std::vector<std::vector<std::byte>> arrays;
  std::vector<TensorBytes> tensors;
  const StateSpec made_of = spec();
  {
    NamedState source = make_state(made_of);
    source.append(20, fill);
    for (const TensorSpec& tensor : made_of.tensors) arrays.push_back(source.read(tensor.name));
    for (std::size_t i = 0; i < arrays.size(); ++i)
      if (made_of.tensors[i].role != TensorRole::position)
        tensors.push_back({made_of.tensors[i].name, arrays[i]});
  }
  const std::function<void(const Row&)> filler = fill;
  fail_every_allocation(trial("append", [&] {
    if (state_->position() == 10) state_->append(5, filler);
  }));
  fail_every_allocation(trial("write", [&] { state_->write(tensors, 20); }));
  fail_every_allocation(
      trial("write one", [&] { state_->write_recurrent("conv", std::as_bytes(std::span(numbers))); }));
  for (const Transition& change : {Transition(Expand{100}), Transition(Truncate{8}), Transition(Truncate{0})})
    fail_every_allocation(trial(transition_name(change), [&] { state_->apply(change); }));
  Trial beside = trial("append to a fork", [&] {
    if (other_->position() == 10) other_->append(5, filler);
  });
  beside.make = [&] {
    make();
    other_.emplace(state_->fork());
  };
  fail_every_allocation(beside);
  fail_every_allocation(trial("questions", [&] {
    state_->views("layers.0.k_state"), state_->read("layers.1.v_state"), state_->spec(), state_->rows();
    state_->plan(Truncate{1}), state_->room();
    split_spec({.layers = 2, .kv_heads = 2, .capacity = 48, .head_dim = 16});
    unified_spec({.layers = 2, .kv_heads = 2, .capacity = 48, .head_dim = 16});
    stacked_spec({.layers = 2, .kv_heads = 2, .capacity = 48, .head_dim = 16});
  }));
}

TEST(AllocationFaults, DenseArraysAndMasksAreMadeOrMemoryEnded) {
  std::vector<std::byte> small(2 * 2 * 8 * 4 * 2, std::byte{5}), large(2 * 2 * 16 * 4 * 2);
  const DenseSource source{small, {2, 2, 8, 4}};
  const DenseTarget target{large, {2, 2, 16, 4}};
  const DenseSource back{large, {2, 2, 16, 4}};
  const DenseTarget less{small, {2, 2, 8, 4}};
  TransitionOptions options;
  options.threads = 2;
  std::vector<float> masks[3];
  Trial trial;
  trial.name = "dense arrays and masks";
  trial.make = [&] { std::fill(large.begin(), large.end(), std::byte{9}); };
  trial.run = [&] {
    transition(source, target, 7, options);
    compact(back, less, 7, options);
    validate_state_shapes(source.shape, target.shape);
    masks[0] = attention_mask({.first = 3, .tokens = 4, .rows = 16, .attention_size = 5, .sinks = 1});
    masks[1] = write_mask({.first = 3, .tokens = 4, .rows = 16});
    masks[2] = attention_size_mask(8, 3, 7);
  };
  trial.end = [&] {
    return std::string(reinterpret_cast<const char*>(large.data()), large.size()) +
           std::to_string(masks[0].size() + masks[1].size() + masks[2].size());
  };
  trial.destroy = [&] {
    for (auto& mask : masks) mask = std::vector<float>();
  };
  fail_every_allocation(trial);
}

}  // namespace
}  // namespace kvtide
