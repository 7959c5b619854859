#include "state/procedural/choice.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"

namespace kvtide {
namespace {

int head_dim_of(const KvSpec& shape) { return shape.layers.front().head_dim; }

// q8_0 takes whole blocks of 32.
DType row_type_of(const KvSpec& shape, const ProceduralOptions& o) {
  return o.half_precision || head_dim_of(shape) % 32 != 0 ? DType::f16 : DType::q8_0;
}

void check_pins(const std::vector<PosRange>& pins) {
  Pos end = 0;
  for (const PosRange& pin : pins) {
    if (pin.first < end || pin.first >= pin.last)
      throw Error(ErrorCode::invalid_argument,
                  cat("procedural memory: positions ", pin.first, " to ", pin.last,
                      " cannot be pinned: ranges must ascend, lie apart and hold something"));
    end = pin.last;
  }
}

DType copy_type_of(FullType wanted, DType other_rows) {
  switch (wanted) {
    case FullType::automatic:
      return other_rows;
    case FullType::f16:
      return DType::f16;
    case FullType::q8_0:
      return DType::q8_0;
    case FullType::q4_0:
      return DType::q4_0;
  }
  return other_rows;
}

}  // namespace

ProceduralSpec procedural_spec(const KvSpec& shape, const AttentionShape& attention,
                               const ProceduralOptions& o) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "procedural memory: " + why);
  };
  const int kv_heads = shape.layers.front().kv_heads, layers = static_cast<int>(shape.layers.size());
  const std::size_t heads = shape.layers.size() * static_cast<std::size_t>(kv_heads);
  if (!o.heads.needs.empty() && (o.heads.kv_heads != kv_heads || o.heads.needs.size() != heads))
    refuse(cat("the head table has ", o.heads.needs.size(), " heads, the model ", heads));
  if (o.rows < 1 || o.rows > o.block)
    refuse(cat("a block of ", o.block, " keeps 1 to ", o.block, " rows, not ", o.rows));
  if (o.summaries < 0 || o.summaries >= o.rows)
    refuse(cat("of ", o.rows, " rows 0 to ", o.rows - 1, " can be summaries, not ", o.summaries));
  if (o.levels < 0 || o.levels > 8) refuse(cat("consolidation has 0 to 8 levels, not ", o.levels));
  const int last_layer = o.last_layer < 0 ? layers - 1 : o.last_layer;
  if (o.first_layer < 0 || o.first_layer > last_layer || last_layer >= layers)
    refuse(cat("layers ", o.first_layer, "-", last_layer, " cannot be compressed: there are 0-", layers - 1));
  check_pins(o.pins);

  ProceduralSpec spec;
  static_cast<ProceduralOptions&>(spec) = o;
  spec.row_type = row_type_of(shape, o);
  spec.copy_type = copy_type_of(o.full_type, spec.row_type);
  if (head_dim_of(shape) % dtype_info(spec.copy_type).block_elements != 0)
    refuse(cat("rows of full heads in ", dtype_info(spec.copy_type).name,
               " need heads of a multiple of 32 elements, not ", head_dim_of(shape), "; use f16"));
  spec.far_from = attention.trained / 8 * 7;
  spec.query_heads = attention.query_heads;
  spec.scale = attention.scale;
  std::vector<bool> compressed;
  for (const LayerSpec& layer : shape.layers) {
    compressed.push_back(!layer.window);
    spec.frequencies.push_back(layer.frequencies);
  }
  spec.plans = plan_heads(o, compressed, kv_heads);
  return spec;
}

namespace {

// From the most faithful to the smallest; a budget gets the first that fits and leaves full heads a fair
// share.
struct Step {
  std::int64_t window, block, rows;
  int levels;
};
constexpr Step kLadder[] = {{1024, 512, 96, 4}, {512, 256, 64, 4}, {512, 256, 32, 3}, {256, 128, 24, 3},
                            {128, 64, 16, 2},   {64, 64, 16, 2},   {32, 32, 12, 1}};
// Reading full heads takes time with every token: more rows than this only when asked for.
constexpr std::int64_t kMostFullRows = 24576;

// Where eight bits would keep fewer than one row in so many, four bits for nearly twice the rows are better;
// up to that the rows that thinning leaves are as good as all of them in four bits
// (docs/procedural_memory.md).
constexpr std::int64_t kWorthThinning = 4;

// The step's window, block, rows and levels where the options leave them open.
ProceduralOptions filled(const KvSpec& shape, const ProceduralOptions& options, const Step& step) {
  ProceduralOptions o = options;
  if (o.block == 0) o.block = o.window > 0 ? std::min(step.block, o.window) : step.block;
  if (o.window == 0) o.window = std::max(step.window, o.block);
  if (o.rows == 0) o.rows = std::min(step.rows, o.block);
  if (o.levels < 0) o.levels = step.levels;
  if (o.full_type == FullType::automatic)
    o.full_type = row_type_of(shape, o) == DType::f16 ? FullType::f16 : FullType::q8_0;
  return o;
}

// Within a budget, for one step and one type of full rows.
class Fitting {
 public:
  Fitting(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& wanted)
      : shape_(shape), attention_(attention), wanted_(wanted) {}

  // The options with as many full rows as the budget allows; nullopt when they do not fit.
  std::optional<ProceduralOptions> fit(ProceduralOptions o) {
    // Full heads take what the others leave, in whole blocks.
    const std::int64_t least =
        wanted_.full_rows > 0 ? wanted_.full_rows : std::min<std::int64_t>(8192, 8 * o.window);
    o.full_rows = least;
    const ProceduralBytes needed = bytes_of(o);
    if (!smallest_ || needed.total() < smallest_->total()) smallest_ = needed;
    if (needed.total() > o.budget) return std::nullopt;
    if (wanted_.full_rows > 0) return o;
    std::int64_t low = least / o.block, high = kMostFullRows / o.block;
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      o.full_rows = middle * o.block;
      if (bytes_of(o).total() <= o.budget)
        low = middle;
      else
        high = middle - 1;
    }
    o.full_rows = std::max(low * o.block, least);
    return o;
  }
  // Of all that was tried.
  const ProceduralBytes& smallest() const { return *smallest_; }

 private:
  ProceduralBytes bytes_of(const ProceduralOptions& o) const {
    KvSpec spec = shape_;
    spec.rolling.reset();
    spec.procedural = procedural_spec(shape_, attention_, o);
    return planned_bytes(spec);
  }

  const KvSpec& shape_;
  const AttentionShape& attention_;
  const ProceduralOptions& wanted_;
  std::optional<ProceduralBytes> smallest_;
};

}  // namespace

ProceduralOptions filled_in(const KvSpec& shape, const AttentionShape& attention,
                            const ProceduralOptions& options) {
  if (options.budget == 0) return filled(shape, options, {512, 256, 64, 3});
  Fitting fitting(shape, attention, options);
  for (const Step& step : kLadder) {
    ProceduralOptions o = filled(shape, options, step);
    const auto eight = fitting.fit(o);
    if (!eight) continue;
    const bool open = options.full_type == FullType::automatic && o.full_type == FullType::q8_0;
    const bool thin =
        options.budget_for == 0 || kWorthThinning * eight->full_rows < options.budget_for - o.window;
    if (!open || !thin || !options.spill.empty()) return *eight;
    o.full_type = FullType::q4_0;
    const auto four = fitting.fit(o);
    return four && four->full_rows > eight->full_rows ? *four : *eight;
  }
  throw Error(ErrorCode::invalid_argument,
              cat("a KV budget of ", given_bytes(options.budget), " is too small: sinks, one window",
                  options.pins.empty() ? "" : ", what is pinned",
                  options.full_rows > 0 ? cat(", ", options.full_rows, " rows of copying heads") : "",
                  " and compact blocks",
                  !fitting.smallest().grows ? ""
                  : options.budget_for > 0
                      ? cat(", which grow with the ", options.budget_for, " tokens that are expected,")
                      : ", which grow with a text of which no end is known (-c),",
                  " need more; use at least ", enough_for(fitting.smallest().total())));
}

}  // namespace kvtide
