#include "state/arrays/layout.h"

#include <algorithm>
#include <utility>

#include "base/refuse.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// The newest rows of a layer that follow one another without a gap, as they are seen.
class Chain {
 public:
  Chain(const StateImage& image, int layer) : image_(image), layer_(static_cast<std::size_t>(layer)) {
    const LayerSpec& spec = image.spec.layers[layer_];
    oldest_ = image.position;
    for (auto s = image.segments.rbegin(); s != image.segments.rend(); ++s) {
      if (s->last + s->shift != oldest_) break;
      if (s->shift > 0 && spec.frequencies.empty()) {
        why_ = "positions before it were moved, and how keys are rotated is not known";
        return;
      }
      const Pos held = oldest_held(*s);
      if (held < s->last && s->shift > 0) moved_ += s->last - held;
      oldest_ = held + s->shift;
      if (held == s->first) continue;
      why_ = cat("layer ", layer, " keeps only its newest positions",
                 spec.window ? " (the layout split holds such layers apart)" : "");
      return;
    }
    // Text that was taken out from between, and the gap closed, is missing nowhere.
    const bool all = !image.segments.empty() &&
                     oldest_ == image.segments[0].first + image.segments[0].shift &&
                     image.segments[0].first == 0;
    if (oldest_ > 0 && !all) why_ = "positions before it were dropped or moved";
  }

  Pos oldest() const { return oldest_; }
  const std::string& why() const { return why_; }  // there are no older ones; "" when there is none missing
  std::int64_t moved() const { return moved_; }

 private:
  // The first position of the run of rows that ends with the segment and can be seen.
  Pos oldest_held(const Segment& segment) const {
    Pos oldest = segment.last;
    const std::vector<PosRange>& runs = image_.runs[layer_];
    for (auto run = runs.rbegin(); run != runs.rend(); ++run)
      if (run->first < oldest && run->last >= oldest) oldest = run->first;
    return std::clamp(std::max(oldest, image_.forgotten[layer_]), segment.first, segment.last);
  }

  const StateImage& image_;
  std::size_t layer_;
  Pos oldest_ = 0;
  std::int64_t moved_ = 0;
  std::string why_;
};

class Planner {
 public:
  Planner(const StateImage& image, const LayoutOptions& options) : image_(image), options_(options) {}

  StateLayout plan() {
    std::vector<int> all;
    for (std::size_t i = 0; i < image_.spec.layers.size(); ++i) all.push_back(static_cast<int>(i));
    if (options_.layout == Layout::split) {
      std::vector<int> local, global;
      for (const int layer : all) (spec(layer).window ? local : global).push_back(layer);
      if (!local.empty()) unified("kv_cache_local", local);
      if (!global.empty()) unified("kv_cache_global", global);
    } else if (options_.layout == Layout::per_layer) {
      const PosRange rows = rows_of(all);
      for (const int layer : all)
        for (const KvPart part : {KvPart::keys, KvPart::values})
          add(cat("layers.", layer, part == KvPart::keys ? ".k_state" : ".v_state"), {{layer, part}}, rows,
              {1});
    } else if (options_.layout == Layout::stacked) {
      const PosRange rows = rows_of(all);
      check_alike(all);
      for (const KvPart part : {KvPart::keys, KvPart::values}) {
        std::vector<LayoutBlock> blocks;
        for (const int layer : all) blocks.push_back({layer, part});
        const auto layers = static_cast<std::int64_t>(all.size());
        add(part == KvPart::keys ? "keyCache" : "valueCache", std::move(blocks), rows, {layers, 1});
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
    for (const KvPart part : {KvPart::keys, KvPart::values})
      for (const int layer : layers) blocks.push_back({layer, part});
    add(name, std::move(blocks), rows_of(layers), {2 * static_cast<std::int64_t>(layers.size())});
  }

  void check_alike(const std::vector<int>& layers) const {
    for (const int layer : layers)
      if (spec(layer).kv_heads != spec(layers[0]).kv_heads ||
          spec(layer).head_dim != spec(layers[0]).head_dim)
        refuse(cat("layers ", layers[0], " and ", layer,
                   " have heads of different shapes, which one array cannot hold; the layout per-layer can"));
  }

  PosRange rows_of(const std::vector<int>& layers) {
    ExactRows exact = exact_rows(image_, layers, options_.layout == Layout::split);
    if (exact.left_out > layout_.left_out) {
      layout_.left_out = exact.left_out;
      layout_.why = std::move(exact.why);
    }
    layout_.moved = std::max(layout_.moved, exact.moved);
    return exact.rows;
  }

  DType type_of(const std::vector<LayoutBlock>& blocks) const {
    if (options_.dtype) return *options_.dtype;
    const auto half = [&](const LayoutBlock& block) {
      return (block.part == KvPart::keys ? image_.spec.key_type : image_.spec.value_type) == DType::f16;
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
    if (options_.layout == Layout::split && layer.window)
      array.capacity = std::min(array.capacity, *layer.window);
    if (rows.size() > array.capacity) refuse(cat(rows.size(), " rows do not fit arrays of ", array.capacity));
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

std::optional<Layout> layout_from_name(std::string_view name) {
  constexpr std::pair<std::string_view, Layout> kNames[] = {{"unified", Layout::unified},
                                                            {"split", Layout::split},
                                                            {"per-layer", Layout::per_layer},
                                                            {"stacked", Layout::stacked}};
  for (const auto& [known, layout] : kNames)
    if (known == name) return layout;
  return std::nullopt;
}

ExactRows exact_rows(const StateImage& image, const std::vector<int>& layers, bool windows_apart) {
  const Pos end = image.position;
  ExactRows exact;
  exact.rows = {0, end};
  const auto from = [&](Pos oldest, const std::string& why) {
    if (oldest <= exact.rows.first) return;
    exact.rows.first = oldest;
    if (why.empty()) return;
    exact.left_out = oldest;
    exact.why = why;
  };
  Pos windows = 0;  // where the rows begin that arrays of windows hold
  for (const int layer : layers) {
    const LayerSpec& spec = image.spec.layers[static_cast<std::size_t>(layer)];
    const Chain chain(image, layer);
    exact.moved = std::max(exact.moved, chain.moved());
    if (spec.window && windows_apart) {
      // The next query sees one row less than the window holds.
      if (chain.oldest() > std::max<Pos>(0, end - *spec.window + 1)) from(chain.oldest(), chain.why());
      windows = std::max({windows, chain.oldest(), end - *spec.window});
      continue;
    }
    from(chain.oldest(), chain.why());
    // Where the sinks are seen from nearer than they were written, or the window has passed a row.
    if (const auto& rolling = image.spec.rolling;
        rolling && !spec.window && end > rolling->sinks + rolling->window)
      from(end - rolling->window, "the rolling window has moved on");
  }
  exact.rows.first = std::max(exact.rows.first, windows);
  exact.moved = std::min(exact.moved, exact.rows.size());
  return exact;
}

StateLayout plan_layout(const StateImage& image, const LayoutOptions& options) {
  return Planner(image, options).plan();
}

}  // namespace kvtide
