#include "state/procedural/drift_json.h"

#include <utility>

namespace kvtide {
namespace drift_report {

Json spread_object(const Spread& spread) {
  Json json = Json::object();
  json.set("mean", spread.mean).set("p50", spread.p50).set("p99", spread.p99);
  return json;
}

}  // namespace drift_report

Json drift_object(const Drift& drift) {
  Json json = Json::object();
  json.set("tokens", drift.tokens)
      .set("output", drift_report::spread_object(drift.output))
      .set("log_mass", drift_report::spread_object(drift.log_mass))
      .set("overlap", drift_report::spread_object(drift.overlap))
      .set("worst_layer", drift.worst_layer < 0 ? Json() : Json(drift.worst_layer))
      .set("worst_output", drift.worst_output)
      .set("bytes", drift.bytes)
      .set("ms", drift.seconds * 1e3);
  return json;
}

Json drift_heads(const Drift& drift) {
  Json heads = Json::array();
  for (const HeadDrift& head : drift.heads) {
    Json item = Json::object();
    item.set("layer", head.layer)
        .set("head", head.head)
        .set("output", head.output)
        .set("log_mass", head.log_mass)
        .set("overlap", head.overlap);
    heads.push(std::move(item));
  }
  return heads;
}

}  // namespace kvtide
