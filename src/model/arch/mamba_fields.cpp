#include "model/arch/mamba_fields.h"

#include "base/text.h"
#include "kvtide/error.h"
#include "model/config/gguf_config.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostSpaceHeads = 65536, kMostHeadDim = 1024, kMostState = 4096, kMostSpaceTaps = 16;

bool is_infinity(const JsonValue& value) {
  if (value.text() != nullptr) return *value.text() == "Infinity";
  const JsonValue* inside = value.find("__float__");
  return inside != nullptr && inside->text() != nullptr && *inside->text() == "Infinity";
}

// Steps are held within these limits when a text is read at once, and not when it is written: only no limit is one
// arithmetic.
void refuse_time_limit(const JsonFields& json) {
  const JsonValue* limits = json.find("time_step_limit");
  if (limits == nullptr) return;
  const auto* list = limits->list();
  const bool none =
      list != nullptr && list->size() == 2 && (*list)[0].number() == 0.0 && is_infinity((*list)[1]);
  if (!none) json.refuse(ErrorCode::unsupported, "'time_step_limit' must be from 0 to Infinity");
}

}  // namespace

void read_state_space(const GgufFile& file, ModelConfig& config) {
  StateSpaceConfig space;
  space.heads = static_cast<int>(read_count(file, "ssm.time_step_rank", 1, kMostSpaceHeads));
  const std::int64_t inner = read_count(file, "ssm.inner_size", 1, std::int64_t{1} << 20);
  if (inner % space.heads != 0 || inner / space.heads > kMostHeadDim)
    throw Error(ErrorCode::bad_format,
                cat(file.path(), ": ", space.heads, " heads cannot share the ssm.inner_size of ", inner,
                    ": they must divide it, with at most ", kMostHeadDim, " each"));
  space.head_dim = static_cast<int>(inner / space.heads);
  space.state = static_cast<int>(read_count(file, "ssm.state_size", 1, kMostState));
  space.groups = static_cast<int>(read_count(file, "ssm.group_count", 1, kMostSpaceHeads, 1));
  space.taps = static_cast<int>(read_count(file, "ssm.conv_kernel", 2, kMostSpaceTaps));
  space.conv_biased = true;
  check_state_space(file.path(), space);
  config.state_space = space;
}

void read_state_space(const JsonFields& json, const StateSpaceKeys& keys, ModelConfig& config) {
  StateSpaceConfig space;
  space.heads = static_cast<int>(json.count(keys.heads, 1, kMostSpaceHeads, 128));
  const JsonValue* head_dim = json.find(keys.head_dim);
  std::int64_t expand = json.count("expand", 1, 64, json.count("mamba_expand", 1, 64, 2));
  if (head_dim == nullptr || head_dim->text() != nullptr) {  // "auto"
    if (expand * config.width % space.heads != 0)
      json.refuse(ErrorCode::bad_format, cat(space.heads, " heads of Mamba-2 cannot share ", expand, " x ",
                                             config.width, " channels: the first number must divide them"));
    space.head_dim = static_cast<int>(expand * config.width / space.heads);
  } else {
    space.head_dim = static_cast<int>(json.count(keys.head_dim, 1, kMostHeadDim));
  }
  space.state = static_cast<int>(json.count(keys.state, 1, kMostState));
  space.groups = static_cast<int>(json.count(keys.groups, 1, kMostSpaceHeads, 1));
  space.taps = static_cast<int>(json.count(keys.taps, 2, kMostSpaceTaps, 4));
  space.biased = json.flag(keys.biased, false);
  space.conv_biased = json.flag(keys.conv_biased, true);
  check_state_space(json.file(), space);
  refuse_time_limit(json);
  config.state_space = space;
}

}  // namespace kvtide
