#include "stateful.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "arguments.h"
#include "arrays.h"
#include "kinds.h"
#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

std::unique_ptr<std::vector<std::uint8_t>> bytes_of(const NamedState& state, const char* name,
                                                    ElementType type) {
  ReadTensor options;
  options.type = type;
  const std::vector<std::byte> bytes = state.read_tensor(name, options).bytes;
  auto out = std::make_unique<std::vector<std::uint8_t>>(bytes.size());
  std::memcpy(out->data(), bytes.data(), bytes.size());
  return out;
}

ElementType element_type_named(const std::string& name) {
  if (name == "f16") return ElementType::f16;
  if (name == "f32") return ElementType::f32;
  throw Error(ErrorCode::invalid_argument, "a cache is float16 or float32, not '" + name + "'");
}

// What arrays show of a memory: q8_0 has no dtype of its own.
ElementType shown(ElementType type) { return type == ElementType::f16 ? ElementType::f16 : ElementType::f32; }

std::span<const TokenId> span_of(const StatefulIds& ids) { return {ids.data(), ids.size()}; }

std::span<const std::byte> span_of(const StatefulBytes& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

}  // namespace

PyStateful::PyStateful(const PyModel& model, const SessionOptions& options) : model_(model.open()) {
  const Running running;
  const WithoutGil others_run;
  stateful_ = std::make_unique<StatefulModel>(*model_, options);
  memory_ = stateful_->session().state().shape();
}

PyStateful::~PyStateful() {
  if (turns_.abandoned()) static_cast<void>(stateful_.release());
}

nb::object PyStateful::predict(const StatefulIds& ids, const StatefulIds& mask) {
  const Turn turn(turns_);
  // Made before the state goes on: no memory for it is then no half of a call.
  auto logits = std::make_unique<std::vector<float>>(static_cast<std::size_t>(model_->vocabulary()));
  {
    const WithoutGil others_run;
    const auto row = stateful_->predict(span_of(ids), span_of(mask));
    std::copy(row.begin(), row.end(), logits->begin());
  }
  past_ = stateful_->past_length();
  return array_of(std::move(logits));
}

KvShape PyStateful::shape() const {
  KvShape shape;
  shape.layers = static_cast<std::int64_t>(memory_.layers.size());
  shape.kv_heads = memory_.layers.front().kv_heads;
  shape.head_dim = memory_.layers.front().head_dim;
  shape.capacity = memory_.capacity;
  shape.key_type = shown(memory_.key_type);
  shape.value_type = shown(memory_.value_type);
  return shape;
}

nb::object PyStateful::dtypes() const {
  return nb::make_tuple(element_type_name(shape().key_type), element_type_name(shape().value_type));
}

nb::object PyStateful::extents() const {
  const KvShape now = shape();
  return nb::make_tuple(now.layers, 1, now.kv_heads, now.capacity, now.head_dim);
}

nb::object PyStateful::state() {
  const Turn turn(turns_);
  const KvShape now = shape();
  std::unique_ptr<std::vector<std::uint8_t>> keys, values;
  std::string model;
  {
    const WithoutGil others_run;
    const NamedState copy = stateful_->state();
    keys = bytes_of(copy, "keyCache", now.key_type);
    values = bytes_of(copy, "valueCache", now.value_type);
    model = copy.spec().model;
  }
  return nb::make_tuple(array_of(std::move(keys)), array_of(std::move(values)), extents(), past_, model);
}

void PyStateful::set_state(const StatefulBytes& keys, const nb::str& key_type, const StatefulBytes& values,
                           const nb::str& value_type, std::int64_t rows, Pos past, const StatefulIds& tokens,
                           const nb::str& model) {
  const Turn turn(turns_);
  KvShape given = shape();
  given.capacity = rows;
  given.key_type = element_type_named(text_of(key_type));
  given.value_type = element_type_named(text_of(value_type));
  StateSpec spec = stacked_spec(given);
  spec.model = text_of(model);
  {
    const WithoutGil others_run;
    NamedState state = make_state(spec);
    const TensorBytes tensors[] = {{"keyCache", span_of(keys)}, {"valueCache", span_of(values)}};
    state.write(tensors, past);
    stateful_->set_state(state, span_of(tokens));
  }
  past_ = stateful_->past_length();
}

void PyStateful::reset() {
  const Turn turn(turns_);
  stateful_->reset();
  past_ = 0;
}

void bind_stateful(nb::module_& module) {
  nb::class_<PyStateful>(module, "StatefulModel", "A model driven as exported ones are.")
      .def(
          "__init__",
          [](PyStateful* self, const PyModel& model, std::int64_t context, bool exact,
             const nb::str& key_type, const nb::str& value_type, int threads, const nb::str& kernels) {
            SessionOptions options;
            options.context = context;
            options.exact = exact;
            options.key_type = element_type("key_type", text_of(key_type));
            options.value_type = element_type("value_type", text_of(value_type));
            options.threads = threads;
            options.kernels = text_of(kernels);
            new (self) PyStateful(model, options);
          },
          nb::arg("model"), nb::arg("context"), nb::arg("exact"), nb::arg("key_type"), nb::arg("value_type"),
          nb::arg("threads"), nb::arg("kernels"))
      .def("predict", &PyStateful::predict, nb::arg("input_ids").noconvert(),
           nb::arg("attention_mask").noconvert())
      .def_prop_ro("past_length", &PyStateful::past_length)
      .def_prop_ro("dtypes", &PyStateful::dtypes)
      .def_prop_ro("shape", &PyStateful::extents)
      .def("state", &PyStateful::state)
      .def("set_state", &PyStateful::set_state, nb::arg("keys").noconvert(), nb::arg("key_type"),
           nb::arg("values").noconvert(), nb::arg("value_type"), nb::arg("rows"), nb::arg("past"),
           nb::arg("tokens").noconvert(), nb::arg("model"))
      .def("reset", &PyStateful::reset);
}

}  // namespace kvtide::python
