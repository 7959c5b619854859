// Made-up sequences of appends, transitions, forks, saves and writes on states of every layout: a state that
// went to disk and back, or through its own arrays, goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/text.h"
#include "kvtide/named_state.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/samples.h"
#include "tests/property/shrink.h"
#include "tests/state/state_rows.h"

namespace kvtide {
namespace {

using testing::Rng;
using testing::row_numbers;
using Bytes = std::vector<std::byte>;
constexpr int kDim = 32;

// A state, and what it should hold: the text of every position, and the recurrent value after each step.
struct Live {
  NamedState state;
  std::vector<std::int64_t> texts;
  std::int64_t capacity;
};

class Walk {
 public:
  Walk(const StateSpec& spec, std::int64_t capacity) : spec_(spec) {
    live_.push_back({make_state(spec), {}, capacity});
  }
  std::int64_t made = 0;

  // "" or what is wrong after the step.
  std::string step(std::uint64_t seed) {
    Rng rng(seed);
    const auto who = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(live_.size())));
    Live& live = live_[who];
    const auto position = static_cast<Pos>(live.texts.size());
    switch (rng.below(9)) {
      case 0:
      case 1:
      case 2:
        append(live, std::min<std::int64_t>(1 + rng.below(9), live.capacity - position));
        break;
      case 3:
        live.capacity *= 2;
        if (live.capacity > 400 || !apply(live, Expand{live.capacity})) live.capacity /= 2;
        break;
      case 4:
        if (const std::int64_t to = std::max<std::int64_t>(1, position + rng.below(5));
            to <= live.capacity && apply(live, Compact{to}))
          live.capacity = to;
        break;
      case 5:
        if (const Pos to = rng.below(4) == 0 ? 0 : std::max<Pos>(0, position - rng.below(6));
            apply(live, Truncate{to}))
          live.texts.resize(static_cast<std::size_t>(to));
        break;
      case 6:
        if (live_.size() < 3) {
          Live fork{live.state.fork(), live.texts, live.capacity};
          live_.push_back(std::move(fork));
          ++made;
        } else {
          live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(who));
        }
        break;
      case 7: {
        if (rng.below(5) > 0) break;  // a save waits for the disk
        live.state.save(folder_.path("a.kv"));
        NamedState loaded = make_state(spec_);
        loaded.load(folder_.path("a.kv"));
        live.state = std::move(loaded);
        ++made;
        break;
      }
      default:
        write_back(live, position);
    }
    for (std::size_t i = 0; i < live_.size(); ++i)
      if (const std::string wrong = compare(live_[i]); !wrong.empty()) return cat("state ", i, ": ", wrong);
    return "";
  }

 private:
  bool apply(Live& live, const Transition& transition) {
    if (!live.state.plan(transition)) return false;
    live.state.apply(transition);
    ++made;
    return true;
  }

  void append(Live& live, std::int64_t tokens) {
    if (tokens < 1) return;
    const std::int64_t text = next_text_;
    live.state.append(tokens, [&](const Row& row) {
      for (const bool key : {true, false}) {
        const auto numbers = row_numbers(text + row.token, static_cast<int>(row.layer),
                                         static_cast<int>(row.kv_head), key, kDim);
        std::copy(numbers.begin(), numbers.end(), (key ? row.key : row.value).begin());
      }
    });
    for (std::int64_t t = 0; t < tokens; ++t) live.texts.push_back(next_text_++);
    for (const TensorSpec& tensor : spec_.tensors)
      if (tensor.role == TensorRole::recurrent)
        live.state.write_recurrent(tensor.name, Bytes(16, static_cast<std::byte>(live.texts.back() % 100)));
    ++made;
  }

  // Through its own arrays into a new state.
  void write_back(Live& live, Pos position) {
    std::vector<Bytes> contents;
    std::vector<TensorBytes> tensors;
    for (const TensorSpec& tensor : spec_.tensors) contents.push_back(live.state.read(tensor.name));
    for (std::size_t i = 0; i < contents.size(); ++i)
      if (spec_.tensors[i].role != TensorRole::position)
        tensors.push_back({spec_.tensors[i].name, contents[i]});
    live.state.write(tensors, position);
    ++made;
  }

  std::string compare(const Live& live) const {
    const auto end = static_cast<Pos>(live.texts.size());
    if (live.state.position() != end) return cat("position ", live.state.position(), " instead of ", end);
    int first_layer = 0;
    for (const TensorSpec& tensor : live.state.spec().tensors) {
      const Bytes bytes = live.state.read(tensor.name);
      if (tensor.role == TensorRole::position) {
        std::int32_t count = 0;
        std::memcpy(&count, bytes.data(), 4);
        if (count != end) return cat(tensor.name, " is ", count);
        continue;
      }
      if (tensor.role == TensorRole::recurrent) {
        const auto wanted = static_cast<std::byte>(end == 0 ? 0 : live.texts.back() % 100);
        if (bytes != Bytes(16, wanted)) return cat(tensor.name, " holds something else");
        continue;
      }
      const DType dtype = tensor.type == ElementType::f32   ? DType::f32
                          : tensor.type == ElementType::f16 ? DType::f16
                                                            : DType::q8_0;
      const std::size_t rank = tensor.shape.size();
      const std::int64_t rows = tensor.shape[rank - 2], heads = tensor.shape[rank - 3],
                         row = dtype_bytes(dtype, kDim);
      const bool both = tensor.role == TensorRole::keys_and_values;
      const auto layers = static_cast<int>(tensor.shape[0] / (both ? 2 : 1));
      const Pos first = tensor.window ? std::max<Pos>(0, end - *tensor.window) : 0;
      const std::byte* at = bytes.data();
      for (std::int64_t block = 0; block < tensor.shape[0]; ++block)
        for (int head = 0; head < heads; ++head)
          for (std::int64_t i = 0; i < rows; ++i, at += row) {
            const bool key = both ? block < layers : tensor.role == TensorRole::keys;
            const int layer = first_layer + static_cast<int>(block) % layers;
            // The oldest row of a full window is seen by no query to come, and may be gone.
            if (i == 0 && first > 0 && testing::all_zero(at, row).empty()) continue;
            const std::string wrong =
                first + i < end
                    ? testing::compare_row(dtype, at,
                                           row_numbers(live.texts[static_cast<std::size_t>(first + i)], layer,
                                                       head, key, kDim))
                    : testing::all_zero(at, row);
            if (!wrong.empty()) return cat(tensor.name, " block ", block, " row ", i, ": ", wrong);
          }
      if (tensor.role != TensorRole::keys) first_layer += layers;
    }
    return "";
  }

  StateSpec spec_;
  std::vector<Live> live_;
  std::int64_t next_text_ = 1;
  testing::TemporaryFolder folder_;
};

std::map<std::string, StateSpec> layouts(ElementType type) {
  const KvShape shape{.layers = 2,
                      .kv_heads = 2,
                      .capacity = 12,
                      .head_dim = kDim,
                      .key_type = type,
                      .value_type = type,
                      .windows = {}};
  KvShape windows = shape;
  windows.windows = {{5}, std::nullopt};
  StateSpec recurrent = unified_spec(shape);
  recurrent.tensors.push_back({"conv_state", TensorRole::recurrent, {2, 2}, ElementType::f32});
  std::map<std::string, StateSpec> all{{"unified", unified_spec(shape)},
                                       {"split", split_spec(windows)},
                                       {"per layer", per_layer_spec(windows)},
                                       {"stacked", stacked_spec(shape)},
                                       {"recurrent", recurrent}};
  for (auto& [name, spec] : all) spec.slack = 4;
  return all;
}

TEST(NamedStateProperty, AThousandTransitionsInEveryLayoutAndType_LeaveWhatWasWritten) {
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::q8_0})
    for (const auto& [name, spec] : layouts(type)) {
      const auto failure = [&, &s = spec](const std::vector<std::uint64_t>& seeds, std::int64_t* made) {
        Walk walk(s, 12);
        for (const std::uint64_t seed : seeds)
          if (std::string wrong = walk.step(seed); !wrong.empty()) return wrong;
        if (made != nullptr) *made += walk.made;
        return std::string();
      };
      std::int64_t made = 0;
      Rng rng(31);
      while (made < 1000) {
        std::vector<std::uint64_t> seeds(60);
        for (auto& seed : seeds) seed = (std::uint64_t{rng.bits()} << 16) ^ rng.bits();
        if (failure(seeds, &made).empty()) continue;
        const auto fewer = testing::shrink<std::uint64_t>(
            seeds, [&](const auto& some) { return !failure(some, nullptr).empty(); }, 300);
        FAIL() << name << ", " << element_type_name(type) << ", after " << fewer.size()
               << " steps: " << failure(fewer, nullptr);
      }
    }
}

}  // namespace
}  // namespace kvtide
