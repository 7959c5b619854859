#include "heads.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arguments.h"
#include "kvtide/heads.h"
#include "model.h"
#include "running.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// KV heads of a layer, and (induction, share, output_norm, worth) of every head of every layer.
using Table = std::pair<int, std::vector<std::tuple<float, float, float, float>>>;

Table as_table(const HeadTable& table) {
  Table out{table.kv_heads, {}};
  for (const HeadNeed& need : table.needs)
    out.second.emplace_back(need.induction, need.share, need.output_norm, need.worth);
  return out;
}

std::optional<Table> known(const PyModel& self, const nb::bytes& cache) {
  const auto model = self.open();
  const std::string folder = text_of(cache);
  std::optional<HeadTable> table;
  {
    const Running running;
    const WithoutGil others_run;
    table = known_heads(*model, folder);
  }
  if (!table) return std::nullopt;
  return as_table(*table);
}

Table measured(const PyModel& self, int threads, const nb::bytes& cache, const nb::object& progress) {
  const auto model = self.open();
  const std::string folder = text_of(cache);
  MeasureHeads options;
  options.threads = threads;
  options.progress = [&](double share) {
    constexpr int kParts = 1000;
    const WithGil back_in_python;
    return in_python([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (stopping()) return false;
      return progress.is_none() ||
             !progress(static_cast<int>(share * kParts), kParts).is(nb::handle(Py_False));
    });
  };
  HeadTable table;
  {
    const Running running;
    const WithoutGil others_run;
    table = measure_heads(*model, options);
    remember_heads(*model, folder, table);
  }
  return as_table(within_two_thirds(std::move(table), *model));
}

}  // namespace

void bind_heads(nb::module_& module) {
  module.def("known_heads", &known, nb::arg("model"), nb::arg("cache"));
  module.def("measure_heads", &measured, nb::arg("model"), nb::arg("threads"), nb::arg("cache"),
             nb::arg("progress").none());
  module.def(
      "read_heads", [](const nb::bytes& path) { return as_table(read_heads(text_of(path))); },
      nb::arg("path"));
}

}  // namespace kvtide::python
