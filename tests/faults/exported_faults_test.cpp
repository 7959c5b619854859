// Shards and stateful models, when memory ends: what hosts of exported models drive.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "kvtide/shard.h"
#include "kvtide/stateful.h"
#include "tests/engine/logits.h"
#include "tests/faults/every_allocation.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

using testing::fail_every_allocation;
using testing::HostCall;
using testing::ShardSample;
using testing::Trial;

std::string bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::string contents(const ShardState& state) {
  std::string text = std::to_string(state.position());
  for (const ShardState::Tensor& tensor : state.tensors())
    text += " " + tensor.name +
            std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return text;
}

TEST(AllocationFaults, AModelIsSplitIntoAFolderOrLeavesNone) {
  const testing::TemporaryFile file = testing::sample_file({.head_dim = 16});
  const testing::TemporaryFolder folder;
  const std::string target = folder.path("shards");
  const ShardExport how = ShardSample::small();
  Trial trial;
  trial.name = "export shards";
  trial.run = [&] { export_shards(file.path(), target, how); };
  trial.look = [&] {
    int entries = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path(".")))
      ++entries;
    return std::to_string(entries);
  };
  trial.end = [&] { return std::to_string(ShardFolder(target).shards().size()); };
  trial.destroy = [&] { std::filesystem::remove_all(target); };
  trial.once_only = true;  // to remove a folder takes memory to list it in
  fail_every_allocation(trial);
}

TEST(AllocationFaults, ShardsAreOpenedAndCalledOrMemoryEnded) {
  for (const std::string& model : {std::string(), std::string(KVTIDE_GOLDENS "/folders/zaya-f16")}) {
    const ShardSample sample =
        model.empty() ? ShardSample(testing::SampleModel{.head_dim = 16}) : ShardSample(model);
    const ShardOptions options{.threads = 2, .kernels = {}};
    const std::string path = sample.path();
    const ShardFolder folder(path, options);
    const std::string kind = model.empty() ? ", plain" : ", carried";
    std::optional<ShardFolder> other;
    Trial trial;
    trial.name = "open a folder" + kind;
    trial.run = [&] { other.emplace(path, options); };
    trial.end = [&] { return std::to_string(other->shards().size()); };
    trial.destroy = [&] { other.reset(); };
    fail_every_allocation(trial);

    const std::string name = "attention.0";
    std::optional<Shard> shard;
    trial.name = "open a shard" + kind;
    trial.run = [&] { shard.emplace(folder.open(name)); };
    trial.end = [&] { return std::to_string(shard->weights_bytes()); };
    trial.destroy = [&] { shard.reset(); };
    fail_every_allocation(trial);

    const Shard attention = folder.open("attention.0");
    const HostCall first(folder, 0, 3, 3, 1), second(folder, 3, 2, 2, 2);
    std::optional<ShardState> state;
    std::vector<float> hidden;
    trial.name = "an attention shard" + kind;
    trial.make = [&] {
      state.emplace(attention.make_state());
      attention.predict(first.inputs(), *state);
    };
    trial.run = [&] { hidden = attention.predict(second.inputs(), *state); };
    trial.look = [&] { return contents(*state); };
    trial.end = [&] {
      std::string all = bytes_of(hidden) + contents(*state);
      state->truncate(4);  // what it held there is known
      return all + contents(*state);
    };
    trial.destroy = [&] {
      state.reset();
      hidden = std::vector<float>();
    };
    fail_every_allocation(trial);

    trial.name = "a new state" + kind;
    trial.make = [] {};
    trial.run = [&] { state.emplace(attention.make_state()); };
    trial.look = [] { return std::string(); };
    trial.end = [&] { return contents(*state); };
    fail_every_allocation(trial);

    const Shard embedding = folder.open("embedding"), head = folder.open("head.0");
    const Shard middle = folder.open(model.empty() ? "mlp.0" : "moe.0");
    const std::vector<TokenId> ids = {3, 4};
    std::vector<float> router(static_cast<std::size_t>(2 * folder.router_width()), 0.5f), outputs[3];
    trial.name = "the other shards" + kind;
    trial.make = [&] { std::fill(router.begin(), router.end(), 0.5f); };
    trial.run = [&] {
      outputs[0] = embedding.predict(ids, 0);
      outputs[1] = head.predict(outputs[0]);
      // The last, since it changes what the next call gets.
      outputs[2] = router.empty() ? middle.predict(outputs[0]) : middle.predict(outputs[0], router);
    };
    trial.look = [&] { return bytes_of(router); };
    trial.end = [&] { return bytes_of(outputs[1]) + bytes_of(outputs[2]) + bytes_of(router); };
    trial.destroy = [&] {
      for (auto& output : outputs) output = std::vector<float>();
    };
    fail_every_allocation(trial);
  }
}

TEST(AllocationFaults, AStatefulModelIsMadeCalledAndGivenAStateOrMemoryEnded) {
  const Model model(KVTIDE_GOLDENS "/folders/gpt2-f32", {.threads = 1});
  const SessionOptions options{.threads = 2};
  const std::vector<TokenId> ids = testing::random_tokens(12, model.vocabulary(), 3);
  const std::vector<std::int32_t> ones(12, 1);
  std::optional<StatefulModel> stateful;
  std::optional<NamedState> state;
  const auto contents_of = [](const NamedState& named) {
    const auto keys = named.read("keyCache"), values = named.read("valueCache");
    return std::string(reinterpret_cast<const char*>(keys.data()), keys.size()) +
           std::string(reinterpret_cast<const char*>(values.data()), values.size());
  };
  Trial trial;
  trial.name = "a stateful model";
  trial.run = [&] { stateful.emplace(model, options); };
  trial.end = [&] { return std::to_string(stateful->past_length()); };
  trial.destroy = [&] {
    stateful.reset();
    state.reset();
  };
  fail_every_allocation(trial);

  const auto read = [&](Pos count) {
    stateful.emplace(model, options);
    stateful->predict(std::span(ids).first(static_cast<std::size_t>(count)),
                      std::span(ones).first(static_cast<std::size_t>(count)));
  };
  const auto seen = [&] {
    return std::to_string(stateful->past_length()) + bytes_of(stateful->session().logits()) +
           contents_of(stateful->state());
  };
  trial.name = "a call of a stateful model";
  trial.make = [&] { read(8); };
  trial.run = [&] { stateful->predict(std::span(ids).subspan(8, 2), std::span(ones).first(10)); };
  trial.look = seen;
  trial.end = seen;
  fail_every_allocation(trial);

  trial.name = "the state of a stateful model";
  trial.run = [&] { state.emplace(stateful->state()); };
  trial.end = [&] { return contents_of(*state); };
  fail_every_allocation(trial);

  trial.name = "a state for a stateful model";
  trial.make = [&] {
    read(5);
    state.emplace(stateful->state());
    read(8);
  };
  trial.run = [&] { stateful->set_state(*state, std::span(ids).first(5)); };
  trial.end = seen;
  fail_every_allocation(trial);
}

}  // namespace
}  // namespace kvtide
