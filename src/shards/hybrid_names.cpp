#include "shards/hybrid_names.h"

#include <stdexcept>

#include "base/text.h"

namespace kvtide {

std::string hybrid_name(Role role) {
  switch (role) {
    case Role::value_delayed:
      return "value_delayed.weight";
    case Role::conv_depthwise:
      return "conv_depthwise";
    case Role::conv_depthwise_bias:
      return "conv_depthwise_bias";
    case Role::conv_grouped:
      return "conv_grouped";
    case Role::conv_grouped_bias:
      return "conv_grouped_bias";
    case Role::key_temperature:
      return "key_temperature";
    case Role::router_down:
      return "router_down.weight";
    case Role::router_down_bias:
      return "router_down.bias";
    case Role::router_carry:
      return "router_carry";
    case Role::router_norm:
      return "router_norm.weight";
    case Role::router_first:
      return "router_first.weight";
    case Role::router_first_bias:
      return "router_first.bias";
    case Role::router_second:
      return "router_second.weight";
    case Role::router_second_bias:
      return "router_second.bias";
    case Role::router_out:
      return "router_out.weight";
    case Role::router_balance:
      return "router_balance";
    default:
      throw std::logic_error("a role without a name in shards");
  }
}

std::string expert_name(int expert, const char* part) { return cat("expert.", expert, ".", part, ".weight"); }

}  // namespace kvtide
