#include "coreml/decode/cache_layout.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>

#include "base/refuse.h"
#include "base/text.h"
#include "coreml/run/counter.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace cache_layout_details {

constexpr std::size_t kHalf = 2;  // bytes of an element

// The name of the values that go with these keys: keyCache, key_cache, k_cache_3, kCache.
std::optional<std::string> values_name(const std::string& keys) {
  const auto with = [&](std::size_t at, std::size_t size, const char* other) {
    return keys.substr(0, at) + other + keys.substr(at + size);
  };
  if (const auto at = keys.find("key"); at != keys.npos) return with(at, 3, "value");
  if (const auto at = keys.find("Key"); at != keys.npos) return with(at, 3, "Value");
  if (keys.starts_with("k_") || keys.starts_with("kCache")) return with(0, 1, "v");
  if (const auto at = keys.find("_k_"); at != keys.npos) return with(at + 1, 1, "v");
  return std::nullopt;
}

// The first number in a name, which orders the states of the layers: k_cache_10 comes behind k_cache_9.
std::int64_t number_in(const std::string& name) {
  std::int64_t number = 0;
  const auto begin = std::min(name.find_first_of("0123456789"), name.size());
  std::from_chars(name.data() + begin, name.data() + name.size(), number);
  return number;
}

// [blocks, (1,) heads, rows, dim], or nothing.
struct Blocks {
  std::int64_t count = 0, heads = 0, slots = 0, width = 0;
};
std::optional<Blocks> blocks_of(const CoremlFeature& state) {
  const auto& shape = state.shape;
  const bool stacked = shape.size() == 5 && shape[1] == 1;
  if (state.type != CoremlType::f16 || (shape.size() != 4 && !stacked)) return std::nullopt;
  const std::size_t rank = shape.size();
  return Blocks{shape[0], shape[rank - 3], shape[rank - 2], shape[rank - 1]};
}

CacheLayer layer_at(const CoremlFeature& keys, std::int64_t key, const CoremlFeature& values,
                    std::int64_t value) {
  const Blocks blocks = *blocks_of(keys);
  return {{keys.name, key}, {values.name, value}, blocks.heads, blocks.slots, blocks.width};
}

std::string names_of(std::span<const CoremlFeature> states) {
  std::string text;
  for (const CoremlFeature& state : states) text += cat(text.empty() ? "" : ", ", state.name);
  return text.empty() ? "none" : text;
}

// Copies the first `count` rows of each head between a place in a state and [1, heads, count, width].
template <class From, class To>
void copy_heads(const CacheLayer& layer, std::int64_t count, From from, To to) {
  const auto row = static_cast<std::size_t>(layer.width) * kHalf;
  for (std::int64_t head = 0; head < layer.heads; ++head)
    std::memcpy(to(head), from(head), static_cast<std::size_t>(count) * row);
}

std::size_t head_offset(const CacheLayer& layer, std::int64_t block, std::int64_t head, std::int64_t rows) {
  return static_cast<std::size_t>((block * layer.heads + head) * rows * layer.width) * kHalf;
}

void check_rows(const CoremlArray& rows, const CacheLayer& layer, int number, std::int64_t count) {
  const auto& shape = rows.shape;
  if (rows.type != CoremlType::f16 || shape.size() != 4 || shape[0] != 1 || shape[1] != layer.heads ||
      shape[2] < count || shape[3] != layer.width)
    refuse(cat("rows of layer ", number, " are for other heads than those of the package, which has ",
               layer.heads, " of ", layer.width));
}

}  // namespace cache_layout_details

using namespace cache_layout_details;

CacheLayout cache_layout_of(std::span<const CoremlFeature> states, const std::string& package) {
  CacheLayout layout;
  std::vector<const CoremlFeature*> caches;
  for (const CoremlFeature& state : states) {
    if (is_counter(state.shape))
      layout.counters.push_back(state.name);
    else
      caches.push_back(&state);
  }
  std::sort(caches.begin(), caches.end(), [](const CoremlFeature* a, const CoremlFeature* b) {
    return std::pair(number_in(a->name), a->name) < std::pair(number_in(b->name), b->name);
  });
  const auto named = [&](const std::string& name) -> const CoremlFeature* {
    for (const CoremlFeature* cache : caches)
      if (cache->name == name) return cache;
    return nullptr;
  };
  std::size_t used = 0;
  for (const CoremlFeature* keys : caches) {
    const auto other = values_name(keys->name);
    const CoremlFeature* values = other ? named(*other) : nullptr;
    if (values == nullptr || values->shape != keys->shape || !blocks_of(*keys) || !blocks_of(*values))
      continue;
    for (std::int64_t i = 0; i < blocks_of(*keys)->count; ++i)
      layout.layers.push_back(layer_at(*keys, i, *values, i));
    used += 2;
  }
  if (const auto both = caches.size() == 1 ? blocks_of(*caches[0]) : std::nullopt;
      used == 0 && both && both->count % 2 == 0) {
    for (std::int64_t i = 0; i < both->count / 2; ++i)
      layout.layers.push_back(layer_at(*caches[0], i, *caches[0], both->count / 2 + i));
    used = 1;
  }
  if (layout.layers.empty() || used != caches.size())
    throw Error(
        ErrorCode::unsupported,
        cat(package, ": its states (", names_of(states),
            ") do not say which holds the keys of which layer; known are keyCache and valueCache [layers, 1, "
            "heads, "
            "rows, dim], one kv_cache [2 * layers, heads, rows, dim], k_cache_0 and v_cache_0 and so on"));
  return layout;
}

std::vector<LayerRows> rows_in(const CoremlState& state, const CacheLayout& layout, int first_layer,
                               std::int64_t count) {
  std::map<std::string, CoremlArray> held;
  const auto array_of = [&](const CacheLayer& layer, const CachePlace& place) {
    auto found = held.find(place.state);
    if (found == held.end()) found = held.emplace(place.state, state.read(place.state)).first;
    CoremlArray rows{CoremlType::f16, {1, layer.heads, count, layer.width}, {}};
    rows.bytes.resize(static_cast<std::size_t>(layer.heads * count * layer.width) * kHalf);
    copy_heads(
        layer, count,
        [&](std::int64_t head) {
          return found->second.bytes.data() + head_offset(layer, place.block, head, layer.slots);
        },
        [&](std::int64_t head) { return rows.bytes.data() + head_offset(layer, 0, head, count); });
    return rows;
  };
  std::vector<LayerRows> rows;
  for (const CacheLayer& layer : layout.layers)
    rows.push_back({first_layer++, array_of(layer, layer.keys), array_of(layer, layer.values)});
  return rows;
}

void fill_rows(CoremlState& state, const CacheLayout& layout, std::int64_t first, std::uint16_t half) {
  std::map<std::string, CoremlArray> filled;
  for (const CacheLayer& layer : layout.layers)
    for (const CachePlace& place : {layer.keys, layer.values}) {
      auto array = filled.find(place.state);
      if (array == filled.end()) array = filled.emplace(place.state, state.read(place.state)).first;
      const auto row = static_cast<std::size_t>(layer.width);
      for (std::int64_t head = 0; head < layer.heads; ++head) {
        auto* rows = reinterpret_cast<std::uint16_t*>(array->second.bytes.data() +
                                                      head_offset(layer, place.block, head, layer.slots));
        std::fill(rows + static_cast<std::size_t>(first) * row,
                  rows + static_cast<std::size_t>(layer.slots) * row, half);
      }
    }
  for (const auto& [name, array] : filled) state.write(name, array);
}

void put_rows(CoremlState& state, const CacheLayout& layout, std::span<const LayerRows> rows,
              std::int64_t count) {
  if (rows.size() != layout.layers.size())
    refuse(cat("there are rows of ", rows.size(), " layers, and the package has ", layout.layers.size()));
  std::map<std::string, CoremlArray> written;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CacheLayer& layer = layout.layers[i];
    for (const auto& part :
         {std::pair(&layer.keys, &rows[i].keys), std::pair(&layer.values, &rows[i].values)}) {
      const CachePlace* place = part.first;
      const CoremlArray* from = part.second;
      check_rows(*from, layer, rows[i].layer, count);
      auto to = written.find(place->state);
      if (to == written.end()) to = written.emplace(place->state, state.read(place->state)).first;
      copy_heads(
          layer, count,
          [&](std::int64_t head) { return from->bytes.data() + head_offset(layer, 0, head, from->shape[2]); },
          [&](std::int64_t head) {
            return to->second.bytes.data() + head_offset(layer, place->block, head, layer.slots);
          });
    }
  }
  for (const std::string& name : layout.counters) {
    CoremlArray counter = state.read(name);
    set_counter(counter, name, count);
    written.insert_or_assign(name, std::move(counter));
  }
  for (const auto& [name, array] : written) state.write(name, array);
}

}  // namespace kvtide::coreml
