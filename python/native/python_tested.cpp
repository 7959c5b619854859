#include "python_tested.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "arguments.h"
#include "kvtide/error.h"
#include "running.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

using GivenFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

struct PythonState final : TestedState {
  explicit PythonState(nb::object o) : object(std::move(o)) {}
  nb::object object;
};

nb::object& held(TestedState& state) { return static_cast<PythonState&>(state).object; }

// What `call` gives. Errors of the model are what is looked for; those that end the program are not.
template <class Call>
auto guarded(Call&& call) {
  try {
    return in_python(call);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    throw Error(ErrorCode::invalid_argument,
                text_of(nb::str(error.type().attr("__name__"))) + ": " + text_of(nb::str(error.value())));
  } catch (const nb::cast_error&) {
    throw Error(ErrorCode::invalid_argument, "the model gave something that is not an array of numbers");
  }
}

std::vector<float> floats(const nb::handle& array) {
  if (array.is_none()) return {};
  const auto view = nb::cast<GivenFloats>(array);
  return {view.data(), view.data() + view.size()};
}

std::vector<TokenId> copy_of(std::span<const TokenId> tokens) { return {tokens.begin(), tokens.end()}; }

HeldRows rows_of(const nb::tuple& pair) {
  const auto keys = nb::cast<GivenFloats>(pair[0]), values = nb::cast<GivenFloats>(pair[1]);
  HeldRows out;
  out.kv_heads = static_cast<std::int64_t>(keys.shape(0));
  out.rows = static_cast<std::int64_t>(keys.shape(1));
  out.head_dim = static_cast<std::int64_t>(keys.shape(2));
  out.keys.assign(keys.data(), keys.data() + keys.size());
  out.values.assign(values.data(), values.data() + values.size());
  return out;
}

}  // namespace

PythonModel::PythonModel(nb::object adapter) : adapter_(std::move(adapter)) {
  const auto said = nb::cast<nb::dict>(adapter_.attr("shape")());
  const auto flag = [&](const char* name) { return nb::cast<bool>(said[name]); };
  shape_.name = text_of(nb::str(said["name"]));
  shape_.width = nb::cast<std::int64_t>(said["width"]);
  shape_.vocab = nb::cast<std::int64_t>(said["vocab"]);
  shape_.largest_chunk = nb::cast<std::int64_t>(said["largest_chunk"]);
  for (const nb::handle layer : nb::cast<nb::list>(said["layers"])) {
    const auto item = nb::cast<nb::tuple>(layer);
    StateLayer made{nb::cast<int>(item[0]), nb::cast<int>(item[1]), std::nullopt};
    if (!item[2].is_none()) made.window = nb::cast<std::int64_t>(item[2]);
    shape_.layers.push_back(made);
  }
  shape_.gives_hidden = flag("gives_hidden");
  shape_.isolates = flag("isolates");
  shape_.gives_rows = flag("gives_rows");
  shape_.truncates = flag("truncates");
  shape_.forks = flag("forks");
  shape_.snapshots = flag("snapshots");
  shape_.poisons = flag("poisons");
  shape_.keeps_capacity = flag("keeps_capacity");
}

std::unique_ptr<TestedState> PythonModel::make_state(std::int64_t capacity) {
  return guarded([&] { return std::make_unique<PythonState>(adapter_.attr("make_state")(capacity)); });
}

Reading PythonModel::read(TestedState& state, std::span<const TokenId> tokens,
                          std::span<const float> inputs) {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  return guarded([&] {
    nb::object fed = nb::none();
    if (!inputs.empty()) {
      const std::size_t shape[] = {shape_.layers.size(), tokens.size(),
                                   static_cast<std::size_t>(shape_.width)};
      auto copy = std::make_unique<float[]>(inputs.size());
      std::copy(inputs.begin(), inputs.end(), copy.get());
      const nb::capsule owner(copy.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
      fed = nb::cast(nb::ndarray<nb::numpy, float>(copy.release(), 3, shape, owner));
    }
    const auto both = nb::cast<nb::tuple>(adapter_.attr("read")(held(state), copy_of(tokens), fed));
    return Reading{floats(both[0]), floats(both[1])};
  });
}

HeldRows PythonModel::rows(TestedState& state, int layer) {
  return guarded([&] { return rows_of(nb::cast<nb::tuple>(adapter_.attr("rows")(held(state), layer))); });
}

void PythonModel::truncate(TestedState& state, Pos length) {
  guarded([&] { held(state) = adapter_.attr("truncate")(held(state), length); });
}

std::unique_ptr<TestedState> PythonModel::fork(TestedState& state) {
  return guarded([&] { return std::make_unique<PythonState>(adapter_.attr("fork")(held(state))); });
}

std::unique_ptr<TestedState> PythonModel::through_snapshot(TestedState& state) {
  return guarded(
      [&] { return std::make_unique<PythonState>(adapter_.attr("through_snapshot")(held(state))); });
}

void PythonModel::poison(TestedState& state, float value) {
  guarded([&] { adapter_.attr("poison")(held(state), value); });
}

PythonReference::PythonReference(nb::object adapter)
    : adapter_(std::move(adapter)), name_(text_of(nb::str(adapter_.attr("name")))) {}

Golden PythonReference::run(std::span<const TokenId> tokens) {
  const auto said = nb::cast<nb::dict>(adapter_.attr("run")(copy_of(tokens)));
  Golden golden;
  golden.tokens = copy_of(tokens);
  golden.layers = nb::cast<std::int64_t>(said["layers"]);
  golden.width = nb::cast<std::int64_t>(said["width"]);
  golden.vocab = nb::cast<std::int64_t>(said["vocab"]);
  golden.hidden = floats(said["hidden"]);
  golden.logits = floats(said["logits"]);
  for (const nb::handle pair : nb::cast<nb::list>(said["rows"]))
    golden.rows.push_back(rows_of(nb::cast<nb::tuple>(pair)));
  frequencies_.clear();
  for (const nb::handle layer : nb::cast<nb::sequence>(said["frequencies"]))
    frequencies_.push_back(vector_of<double>(nb::cast<nb::sequence>(layer), "frequencies"));
  return golden;
}

std::vector<double> PythonReference::frequencies(int layer) const {
  return static_cast<std::size_t>(layer) < frequencies_.size() ? frequencies_[static_cast<std::size_t>(layer)]
                                                               : std::vector<double>();
}

}  // namespace kvtide::python
