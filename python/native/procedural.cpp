#include "procedural.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>

#include "arguments.h"
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
  const std::string name = text_of(value_of<nb::str>(key, value));
  std::string list;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<T>(i);
    list += std::string(i == 0 ? "" : ", ") + names[i];
  }
  refuse("'" + key + "' must be one of " + list + ", not '" + name + "'");
}

template <auto kField>
void number(ProceduralOptions& o, const std::string& key, const nb::handle& value) {
  o.*kField = value_of<std::remove_reference_t<decltype(o.*kField)>>(key, value);
}

void set_heads(ProceduralOptions& o, const std::string& key, const nb::handle& value) {
  for (const nb::handle head : value_of<nb::sequence>(key, value)) {
    const auto [induction, share, norm] = value_of<std::tuple<double, double, double>>(key, head);
    if (!std::isfinite(induction) || !std::isfinite(share) || !std::isfinite(norm))
      refuse("'heads' must be finite numbers");
    o.heads.needs.push_back(
        {static_cast<float>(induction), static_cast<float>(share), static_cast<float>(norm)});
  }
}

// One line for each option: its name in Python, and what a value of it sets.
struct Option {
  const char* name;
  void (*set)(ProceduralOptions&, const std::string& key, const nb::handle& value);
};
using O = ProceduralOptions;
using Key = const std::string&;
using Value = const nb::handle&;
constexpr Option kOptions[] = {
    {"budget", &number<&O::budget>},
    {"budget_for", &number<&O::budget_for>},
    {"sinks", &number<&O::sinks>},
    {"window", &number<&O::window>},
    {"block", &number<&O::block>},
    {"rows", &number<&O::rows>},
    {"summaries", &number<&O::summaries>},
    {"levels", &number<&O::levels>},
    {"full_rows", &number<&O::full_rows>},
    {"full_type",
     [](O& o, Key k, Value v) {
       o.full_type = choice<FullType>(k, v, {"automatic", "f16", "q8_0", "q4_0"});
     }},
    {"summary",
     [](O& o, Key k, Value v) {
       o.summary = choice<Summary>(k, v, {"fit", "cluster", "positional"});
     }},
    {"score",
     [](O& o, Key k, Value v) {
       o.score = choice<RowScore>(k, v, {"mixed", "novelty", "vnorm", "attention"});
     }},
    {"far",
     [](O& o, Key k, Value v) {
       o.far = choice<FarRule>(k, v, {"log", "clamp"});
     }},
    {"adapt",
     [](O& o, Key k, Value v) {
       o.adapt = choice<Adapt>(k, v, {"off", "drift", "entropy"});
     }},
    {"kv_heads", [](O& o, Key k, Value v) { o.heads.kv_heads = value_of<int>(k, v); }},
    {"heads", &set_heads},
};

}  // namespace

ProceduralOptions procedural_options(const nb::dict& wanted) {
  ProceduralOptions options;
  for (const auto& [handle, value] : wanted) {
    const std::string key = text_of(value_of<nb::str>("a key", handle));
    const auto* option = std::find_if(std::begin(kOptions), std::end(kOptions),
                                      [&](const Option& o) { return key == o.name; });
    if (option == std::end(kOptions)) refuse("there is no option '" + key + "'");
    option->set(options, key, value);
  }
  return options;
}

std::vector<std::string> procedural_option_names() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  return names;
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
