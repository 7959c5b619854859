#include "cli/state_layout.h"

#include <algorithm>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

class Planner {
 public:
  Planner(const StateImage& image, const LayoutOptions& options) : image_(image), options_(options) {}

  StateLayout plan() {
    std::vector<int> all;
    for (std::size_t i = 0; i < image_.spec.layers.size(); ++i) all.push_back(static_cast<int>(i));
    if (options_.layout == "split") {
      std::vector<int> local, global;
      for (const int layer : all) (spec(layer).window ? local : global).push_back(layer);
      if (!local.empty()) unified("kv_cache_local", local);
      if (!global.empty()) unified("kv_cache_global", global);
    } else if (options_.layout == "per-layer") {
      const PosRange rows = rows_of(all);
      for (const int layer : all)
        for (const Part part : {Part::keys, Part::values})
          add(cat("layers.", layer, part == Part::keys ? ".k_state" : ".v_state"), {{layer, part}}, rows,
              {1});
    } else if (options_.layout == "stacked") {
      const PosRange rows = rows_of(all);
      check_alike(all);
      for (const Part part : {Part::keys, Part::values}) {
        std::vector<LayoutBlock> blocks;
        for (const int layer : all) blocks.push_back({layer, part});
        const auto layers = static_cast<std::int64_t>(all.size());
        add(part == Part::keys ? "keyCache" : "valueCache", std::move(blocks), rows, {layers, 1});
      }
    } else {
      unified("kv_cache", all);
    }
    return std::move(layout_);
  }

 private:
  const LayerSpec& spec(int layer) const { return image_.spec.layers[static_cast<std::size_t>(layer)]; }

  void unified(const char* name, const std::vector<int>& layers) {
    check_alike(layers);
    std::vector<LayoutBlock> blocks;
    for (const Part part : {Part::keys, Part::values})
      for (const int layer : layers) blocks.push_back({layer, part});
    add(name, std::move(blocks), rows_of(layers), {2 * static_cast<std::int64_t>(layers.size())});
  }

  void check_alike(const std::vector<int>& layers) const {
    for (const int layer : layers)
      if (spec(layer).kv_heads != spec(layers[0]).kv_heads ||
          spec(layer).head_dim != spec(layers[0]).head_dim)
        refuse(cat("layers ", layers[0], " and ", layer, " have heads of different shapes, which the layout ",
                   options_.layout, " cannot hold; use --layout per-layer"));
  }

  void leave_out(Pos first, std::string why) {
    if (first <= layout_.left_out) return;
    layout_.left_out = first;
    layout_.why = std::move(why);
  }

  // The newest positions that all of these layers hold as they were written.
  PosRange rows_of(const std::vector<int>& layers) {
    const Pos end = image_.position;
    Pos first = 0;
    const auto from = [&](Pos oldest, const std::string& why) {
      if (oldest <= first) return;
      first = oldest;
      if (!options_.exact_only)
        refuse(cat("plain arrays cannot say it all: ", why, "; --exact-only exports the positions from ",
                   oldest, " on and leaves the others out"));
      leave_out(oldest, why);
    };
    if (!image_.segments.empty() && image_.segments.back().shift != 0)
      from(end, "the newest positions were moved");
    if (image_.segments.size() > 1 || (!image_.segments.empty() && image_.segments[0].first > 0))
      from(image_.segments.back().first, "positions before it were dropped or moved");
    // Where the sinks are seen from nearer than they were written, or the window has passed a row.
    if (const auto& rolling = image_.spec.rolling; rolling && end > rolling->sinks + rolling->window)
      for (const int layer : layers)
        if (!spec(layer).window) {
          from(end - rolling->window, "the rolling window has moved on");
          break;
        }
    for (const int layer : layers) {
      const Pos oldest = oldest_held(layer, end);
      if (spec(layer).window && options_.layout == "split") {
        // The array of these layers holds a window by definition: older rows are no loss.
        first = std::max({first, oldest, end - *spec(layer).window});
        continue;
      }
      from(oldest, cat("layer ", layer, " keeps only its newest positions",
                       spec(layer).window ? " (--layout split exports such layers apart)" : ""));
    }
    return {first, end};
  }

  // The first position of the run of rows that ends with the newest one.
  Pos oldest_held(int layer, Pos end) const {
    Pos oldest = end;
    const std::vector<PosRange>& runs = image_.runs[static_cast<std::size_t>(layer)];
    for (auto run = runs.rbegin(); run != runs.rend() && run->last == oldest; ++run) oldest = run->first;
    return oldest;
  }

  DType type_of(const std::vector<LayoutBlock>& blocks) const {
    if (options_.dtype) return *options_.dtype;
    const auto half = [&](const LayoutBlock& block) {
      return (block.part == Part::keys ? image_.spec.key_type : image_.spec.value_type) == DType::f16;
    };
    return std::all_of(blocks.begin(), blocks.end(), half) ? DType::f16 : DType::f32;
  }

  // `shape`: what stands in front of [kv_heads, capacity, head_dim].
  void add(std::string name, std::vector<LayoutBlock> blocks, PosRange rows,
           std::vector<std::int64_t> shape) {
    LayoutArray array;
    const LayerSpec& layer = spec(blocks[0].layer);
    array.capacity = options_.capacity.value_or(std::max<std::int64_t>(rows.size(), 1));
    // An array of a window has that many rows at most.
    if (options_.layout == "split" && layer.window) array.capacity = std::min(array.capacity, *layer.window);
    if (rows.size() > array.capacity)
      refuse(cat("--capacity: ", rows.size(), " rows do not fit arrays of ", array.capacity));
    array.name = std::move(name);
    array.dtype = type_of(blocks);
    array.blocks = std::move(blocks);
    array.rows = rows;
    array.shape = std::move(shape);
    for (const std::int64_t extent : {static_cast<std::int64_t>(layer.kv_heads), array.capacity,
                                      static_cast<std::int64_t>(layer.head_dim)})
      array.shape.push_back(extent);
    layout_.arrays.push_back(std::move(array));
  }

  const StateImage& image_;
  const LayoutOptions& options_;
  StateLayout layout_;
};

}  // namespace

StateLayout plan_layout(const StateImage& image, const LayoutOptions& options) {
  return Planner(image, options).plan();
}

}  // namespace kvtide
