#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "arguments.h"
#include "kinds.h"
#include "kvtide/error.h"
#include "state.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

using Layer = std::tuple<int, int, std::optional<std::int64_t>>;  // KV heads, head dim, window

Transition make_transition(const std::string& name, std::optional<std::int64_t> first, std::int64_t last,
                           bool close_gap) {
  const std::int64_t number = first.value_or(0);
  if (name == "expand") return Expand{number};
  if (name == "compact") return Compact{number};
  if (name == "truncate") return Truncate{number};
  if (name == "truncate to the nearest") return Truncate{number, true};
  if (name == "drop") return Drop{{number, last}, close_gap};
  if (name == "attention") return SetAttention{first};
  throw Error(ErrorCode::invalid_argument, "there is no transition '" + name + "'");
}

KvPart part_of(bool keys) { return keys ? KvPart::keys : KvPart::values; }

void make_state(PyState* self, const Sequence<Layer>& layers, const nb::str& key_type,
                const nb::str& value_type, std::int64_t capacity, std::int64_t slack,
                const std::optional<std::pair<std::int64_t, std::int64_t>>& rolling, bool rotary,
                std::int64_t position, const Sequence<TokenId>& tokens, bool windows_only) {
  StateShape shape;
  for (const auto& [kv_heads, head_dim, window] : vector_of<Layer>(layers, "layers"))
    shape.layers.push_back({kv_heads, head_dim, window});
  shape.key_type = element_type("key_type", text_of(key_type));
  shape.value_type = element_type("value_type", text_of(value_type));
  shape.capacity = capacity;
  shape.slack = slack;
  if (rolling) shape.rolling = Rolling{rolling->first, rolling->second};
  shape.rotary = rotary;
  if (position == 0)
    new (self) PyState(State(shape));
  else
    new (self) PyState(State(shape, position, vector_of<TokenId>(tokens, "tokens"), windows_only));
}

}  // namespace

RecordTuple as_tuple(const TransitionRecord& r) {
  return {r.name,           r.position,     r.rows_kept,   r.rows_dropped, r.capacity_before,
          r.capacity_after, r.bytes_before, r.bytes_after, r.milliseconds, r.read_again};
}

void bind_state(nb::module_& module) {
  nb::class_<PyState>(module, "State", "A KV memory; kvtide.State wraps it.")
      .def("__init__", &make_state, nb::arg("layers"), nb::arg("key_type"), nb::arg("value_type"),
           nb::arg("capacity"), nb::arg("slack"), nb::arg("rolling").none(), nb::arg("rotary"),
           nb::arg("position"), nb::arg("tokens"), nb::arg("windows_only"))
      .def_static(
          "of", [](nb::handle_t<PySession> session) { return new PyState(nb::borrow(session)); },
          nb::arg("session"), nb::rv_policy::take_ownership)
      .def_static(
          "load", [](const nb::bytes& path) { return PyState::load(text_of(path)); }, nb::arg("path"),
          nb::rv_policy::take_ownership)
      .def(
          "save",
          [](PyState& self, const nb::bytes& path, const nb::bytes& cache) {
            self.save(text_of(path), text_of(cache));
          },
          nb::arg("path"), nb::arg("cache"))
      .def("fork", &PyState::fork, nb::rv_policy::take_ownership)
      .def("replace", &PyState::replace, nb::arg("other"))
      .def(
          "plan",
          [](PyState& self, const nb::str& name, std::optional<std::int64_t> first, std::int64_t last,
             bool close_gap) {
            const TransitionPlan plan = self.plan(make_transition(text_of(name), first, last, close_gap));
            return std::make_tuple(plan.refusal(), as_tuple(plan.expected()));
          },
          nb::arg("name"), nb::arg("first").none(), nb::arg("last") = 0, nb::arg("close_gap") = false)
      .def(
          "apply",
          [](PyState& self, const nb::str& name, std::optional<std::int64_t> first, std::int64_t last,
             bool close_gap) {
            return as_tuple(self.apply(make_transition(text_of(name), first, last, close_gap)));
          },
          nb::arg("name"), nb::arg("first").none(), nb::arg("last") = 0, nb::arg("close_gap") = false)
      .def(
          "view",
          [](PyState& self, int layer, bool keys, Pos first, Pos last) {
            return self.view(layer, part_of(keys), {first, last});
          },
          nb::arg("layer"), nb::arg("keys"), nb::arg("first"), nb::arg("last"))
      .def(
          "read",
          [](PyState& self, int layer, bool keys, Pos first, Pos last, const Floats& rows) {
            self.read(layer, part_of(keys), {first, last}, rows);
          },
          nb::arg("layer"), nb::arg("keys"), nb::arg("first"), nb::arg("last"), nb::arg("rows").noconvert())
      .def(
          "write",
          [](PyState& self, int layer, bool keys, Pos first, Pos last, const ConstFloats& rows) {
            self.write(layer, part_of(keys), {first, last}, rows);
          },
          nb::arg("layer"), nb::arg("keys"), nb::arg("first"), nb::arg("last"), nb::arg("rows").noconvert())
      .def(
          "write_raw",
          [](PyState& self, int layer, bool keys, Pos first, Pos last, const RawRows& rows) {
            self.write_raw(layer, part_of(keys), {first, last}, rows);
          },
          nb::arg("layer"), nb::arg("keys"), nb::arg("first"), nb::arg("last"), nb::arg("rows").noconvert())
      .def(
          "runs",
          [](PyState& self, int layer) {
            return self.in_turn([&](const State& state) {
              std::vector<std::pair<Pos, Pos>> runs;
              for (const PosRange& run : state.runs(layer)) runs.emplace_back(run.first, run.last);
              return runs;
            });
          },
          nb::arg("layer"))
      .def(
          "plain_rows",
          [](PyState& self, int layer) {
            return self.in_turn([&](const State& state) {
              const PlainRows plain = state.plain_rows(layer);
              return std::make_pair(plain.first, plain.why);
            });
          },
          nb::arg("layer"))
      .def("tokens",
           [](PyState& self) { return self.in_turn([](const State& state) { return state.tokens(); }); })
      .def("identity",
           [](PyState& self) {
             return self.in_turn([](const State& state) {
               nb::typed<nb::dict, nb::str, nb::str> identity;
               for (const auto& [key, value] : state.identity()) identity[key.c_str()] = value;
               return identity;
             });
           })
      // What layers carry beside rows: names, shapes, and the floats as bytes.
      .def_prop_ro("carried",
                   [](PyState& self) {
                     return self.in_turn([](const State& state) {
                       nb::typed<nb::list, nb::any> out;
                       for (const CarriedTensor& tensor : state.carried())
                         out.append(nb::make_tuple(
                             tensor.name, tensor.shape,
                             nb::bytes(tensor.values.data(), tensor.values.size() * sizeof(float))));
                       return out;
                     });
                   })
      // What never changes while others compute.
      .def_prop_ro("shape",
                   [](const PyState& self) {
                     const StateShape shape = self.shape();
                     std::vector<Layer> layers;
                     for (const StateLayer& l : shape.layers)
                       layers.emplace_back(l.kv_heads, l.head_dim, l.window);
                     std::optional<std::pair<std::int64_t, std::int64_t>> rolling;
                     if (shape.rolling) rolling.emplace(shape.rolling->sinks, shape.rolling->window);
                     return std::make_tuple(layers, element_type_name(shape.key_type),
                                            element_type_name(shape.value_type), shape.slack, rolling,
                                            shape.rotary);
                   })
      .def_prop_ro("numbers",
                   [](const PyState& self) {
                     const StateNumbers n = self.numbers();
                     return std::make_tuple(n.position, n.rows, n.capacity, n.room, n.held_bytes,
                                            n.shared_bytes, n.capacity_bytes, n.attention_size, n.budget);
                   })
      .def("close", &PyState::close)
      .def_prop_ro("closed", &PyState::closed)
      .def_prop_ro("live", &PyState::live)
      .def_prop_ro("busy", &PyState::busy)
      .def_prop_ro("views", &PyState::views);
}

}  // namespace kvtide::python
