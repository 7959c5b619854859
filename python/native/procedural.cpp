#include "procedural.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>
#include <tuple>

#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "procedural: " + why);
}

template <class T>
T value_of(const std::string& key, const nb::handle& value) {
  T result{};
  if (!nb::try_cast(value, result)) refuse("'" + key + "' has a value of another kind");
  return result;
}

template <class T, std::size_t kCount>
T choice(const std::string& key, const nb::handle& value, const char* const (&names)[kCount]) {
  const auto name = value_of<std::string>(key, value);
  std::string list;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<T>(i);
    list += std::string(i == 0 ? "" : ", ") + names[i];
  }
  refuse("'" + key + "' must be one of " + list + ", not '" + name + "'");
}

}  // namespace

ProceduralOptions procedural_options(const nb::dict& wanted) {
  ProceduralOptions o;
  for (const auto& [handle, value] : wanted) {
    const auto key = value_of<std::string>("a key", handle);
    const auto whole = [&](auto& field) {
      field = value_of<std::remove_reference_t<decltype(field)>>(key, value);
    };
    if (key == "budget")
      whole(o.budget);
    else if (key == "budget_for")
      whole(o.budget_for);
    else if (key == "sinks")
      whole(o.sinks);
    else if (key == "window")
      whole(o.window);
    else if (key == "block")
      whole(o.block);
    else if (key == "rows")
      whole(o.rows);
    else if (key == "summaries")
      whole(o.summaries);
    else if (key == "levels")
      whole(o.levels);
    else if (key == "full_rows")
      whole(o.full_rows);
    else if (key == "full_type")
      o.full_type = choice<FullType>(key, value, {"automatic", "f16", "q8_0", "q4_0"});
    else if (key == "summary")
      o.summary = choice<Summary>(key, value, {"fit", "cluster", "positional"});
    else if (key == "score")
      o.score = choice<RowScore>(key, value, {"mixed", "novelty", "vnorm", "attention"});
    else if (key == "far")
      o.far = choice<FarRule>(key, value, {"log", "clamp"});
    else if (key == "adapt")
      o.adapt = choice<Adapt>(key, value, {"off", "drift", "entropy"});
    else if (key == "kv_heads")
      whole(o.heads.kv_heads);
    else if (key == "heads")
      for (const auto& [induction, share, norm] :
           value_of<std::vector<std::tuple<double, double, double>>>(key, value)) {
        if (!std::isfinite(induction) || !std::isfinite(share) || !std::isfinite(norm))
          refuse("'heads' must be finite numbers");
        o.heads.needs.push_back(
            {static_cast<float>(induction), static_cast<float>(share), static_cast<float>(norm)});
      }
    else
      refuse("there is no option '" + key + "'");
  }
  return o;
}

nb::object procedural_dict(const std::optional<ProceduralCounts>& counts) {
  if (!counts) return nb::none();
  nb::dict rows, all;
  rows["sinks"] = counts->sink_rows;
  rows["window"] = counts->window_rows;
  rows["full"] = counts->full_rows;
  rows["outliers"] = counts->outlier_rows;
  rows["summaries"] = counts->summary_rows;
  all["rows"] = rows;
  all["seals"] = counts->blocks_sealed;
  all["consolidations"] = counts->consolidations;
  all["shed"] = counts->shed_mass;
  all["fits_rejected"] = counts->fits_rejected;
  all["log_mass_error"] = counts->log_mass_error;
  all["seal_ms"] = counts->seal_seconds * 1e3;
  all["kv_bytes_peak"] = counts->bytes_peak;
  return all;
}

}  // namespace kvtide::python
