#include "shard.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arguments.h"
#include "arrays.h"
#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

std::span<const float> span_of(const ShardFloats& array) { return {array.data(), array.size()}; }

using Values = std::vector<float>;

template <class Compute>
nb::object compute(Turns& turns, Compute body) {
  const Turn turn(turns);
  auto out = std::make_unique<Values>();  // before a state goes on
  {
    const WithoutGil others_run;
    *out = body();
  }
  return array_of(std::move(out));
}

ShardExport::Type export_type_named(const std::string& name) {
  if (name == "f16") return ShardExport::Type::f16;
  if (name == "int8") return ShardExport::Type::int8;
  throw Error(ErrorCode::invalid_argument, "type must be 'f16' or 'int8', not '" + name + "'");
}

ShardExport::Scales scales_named(const std::string& name) {
  if (name == "channel") return ShardExport::Scales::channel;
  if (name == "tensor") return ShardExport::Scales::tensor;
  throw Error(ErrorCode::invalid_argument, "scales must be 'channel' or 'tensor', not '" + name + "'");
}

void export_model(const nb::bytes& model, const nb::bytes& folder, const nb::str& type, const nb::str& scales,
                  std::int64_t min_elements, const Sequence<std::string>& keep_f16,
                  std::optional<std::int64_t> slots, int head_shards, int threads) {
  ShardExport how;
  how.type = export_type_named(text_of(type));
  how.scales = scales_named(text_of(scales));
  how.min_elements = min_elements;
  how.keep_f16 = texts_of(keep_f16, "keep_f16");
  how.slots = slots;
  how.head_shards = head_shards;
  how.threads = threads;
  how.on_shard = [](const ShardInfo&) {
    if (stopping()) throw Error(ErrorCode::cancelled, "the interpreter exits");
    const WithGil back_in_python;
    in_python([] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
  };
  const std::string from = text_of(model), to = text_of(folder);
  const Running running;
  const WithoutGil others_run;
  export_shards(from, to, how);
}

}  // namespace

void PyShardState::truncate(Pos n) {
  const Turn turn(*turns_);
  state_.truncate(n);
  position_ = n;
}

nb::object PyShardState::tensor(nb::handle self, std::size_t index) const {
  const auto tensors = state_.tensors();
  if (index >= tensors.size()) throw nb::index_error();
  const ShardState::Tensor& tensor = tensors[index];
  std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  nb::dlpack::dtype dtype = nb::dtype<float>();
  if (tensor.type == ElementType::f16)
    dtype = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  return nb::cast(
      nb::ndarray<nb::numpy>(tensor.bytes.data(), shape.size(), shape.data(), self, nullptr, dtype));
}

PyShardState* PyShard::make_state() const { return new PyShardState(shard_.make_state(), turns_); }

nb::object PyShard::predict_attention(const ShardFloats& x, const ShardFloats& cosine,
                                      const ShardFloats& sine, const ShardFloats& attention_mask,
                                      const ShardFloats& write_mask, PyShardState& state, bool hides_past,
                                      bool other_positions) {
  const ShardInputs inputs{span_of(x),          span_of(cosine), span_of(sine),  span_of(attention_mask),
                           span_of(write_mask), hides_past,      other_positions};
  // A state that came from another opened folder has turns of its own.
  std::optional<Turn> other;
  if (state.turns_ != turns_) other.emplace(*state.turns_);
  nb::object hidden = compute(*turns_, [&] { return shard_.predict(inputs, state.state_); });
  state.position_ = state.state_.position();
  return hidden;
}

nb::object PyShard::predict_hidden(const ShardFloats& hidden) {
  return compute(*turns_, [&] { return shard_.predict(span_of(hidden)); });
}

nb::object PyShard::predict_moe(const ShardFloats& hidden, const ShardFloats& router) {
  auto states = std::make_unique<Values>(router.data(), router.data() + router.size());
  nb::object out = compute(*turns_, [&] { return shard_.predict(span_of(hidden), std::span(*states)); });
  return nb::make_tuple(std::move(out), array_of(std::move(states)));
}

nb::object PyShard::predict_ids(const ShardIds& ids, Pos first) {
  return compute(*turns_, [&] { return shard_.predict(std::span(ids.data(), ids.size()), first); });
}

PyShardFolder::PyShardFolder(const nb::bytes& path, int threads) {
  const std::string folder = text_of(path);
  const Running running;
  const WithoutGil others_run;
  ShardOptions options;
  options.threads = threads;
  folder_ = std::make_unique<ShardFolder>(folder, options);
}

PyShard* PyShardFolder::open(const nb::str& given) const {
  const std::string name = text_of(given);
  const Turn turn(*turns_);
  std::optional<Shard> shard;
  {
    const WithoutGil others_run;
    shard.emplace(folder_->open(name));
  }
  return new PyShard(std::move(*shard), turns_);
}

nb::object PyShardFolder::rope_rows(int rope, Pos first, std::int64_t count) const {
  const auto size = static_cast<std::size_t>(count * folder_->rope_half());
  auto cosine = std::make_unique<Values>(size), sine = std::make_unique<Values>(size);
  folder_->rope_rows(rope, first, count, *cosine, *sine);
  return nb::make_tuple(array_of(std::move(cosine)), array_of(std::move(sine)));
}

void bind_shard(nb::module_& module) {
  module.def("export_shards", &export_model, nb::arg("model"), nb::arg("folder"), nb::arg("type"),
             nb::arg("scales"), nb::arg("min_elements"), nb::arg("keep_f16"), nb::arg("slots").none(),
             nb::arg("head_shards"), nb::arg("threads"), "Splits a model; see kvtide/shard.h.");
  nb::class_<ShardInfo>(module, "ShardInfo", "What a manifest says of a shard.")
      .def_ro("name", &ShardInfo::name)
      .def_prop_ro("kind", [](const ShardInfo& info) { return std::string(shard_kind_name(info.kind)); })
      .def_ro("file", &ShardInfo::file)
      .def_ro("bytes", &ShardInfo::bytes)
      .def_ro("layer", &ShardInfo::layer)
      .def_ro("rope", &ShardInfo::rope)
      .def_ro("window", &ShardInfo::window)
      .def_ro("vocab_first", &ShardInfo::vocab_first)
      .def_ro("vocab_last", &ShardInfo::vocab_last);
  nb::class_<PyShardState>(module, "ShardState", "The keys and values of one shard and sequence.")
      .def_prop_ro("shard", [](const PyShardState& self) { return self.look().shard(); })
      .def_prop_ro("slots", [](const PyShardState& self) { return self.look().slots(); })
      .def_prop_ro("position", [](const PyShardState& self) { return self.position(); })
      .def_prop_ro("nbytes", [](const PyShardState& self) { return self.look().bytes(); })
      .def_prop_ro("tensor_names",
                   [](const PyShardState& self) {
                     std::vector<std::string> names;
                     for (const auto& tensor : self.look().tensors()) names.push_back(tensor.name);
                     return names;
                   })
      .def("truncate", &PyShardState::truncate, nb::arg("n"))
      .def(
          "tensor",
          [](nb::handle self, std::size_t index) {
            return nb::cast<PyShardState&>(self).tensor(self, index);
          },
          nb::arg("index"));
  nb::class_<PyShard>(module, "Shard", "One piece of a split model.")
      .def_prop_ro("info", [](const PyShard& self) { return self.look().info(); })
      .def_prop_ro("nbytes", [](const PyShard& self) { return self.look().weights_bytes(); })
      .def("make_state", &PyShard::make_state, nb::rv_policy::take_ownership)
      .def("predict_attention", &PyShard::predict_attention, nb::arg("x").noconvert(),
           nb::arg("rope_cos").noconvert(), nb::arg("rope_sin").noconvert(),
           nb::arg("attention_mask").noconvert(), nb::arg("write_mask").noconvert(), nb::arg("state"),
           nb::arg("hides_past"), nb::arg("other_positions"))
      .def("predict_hidden", &PyShard::predict_hidden, nb::arg("hidden").noconvert())
      .def("predict_moe", &PyShard::predict_moe, nb::arg("hidden").noconvert(), nb::arg("router").noconvert())
      .def("predict_ids", &PyShard::predict_ids, nb::arg("ids").noconvert(), nb::arg("first"));
  nb::class_<PyShardFolder>(module, "ShardFolder", "A model that was split into files.")
      .def(nb::init<const nb::bytes&, int>(), nb::arg("path"), nb::arg("threads"))
      .def_prop_ro("shards", [](const PyShardFolder& self) { return self.look().shards(); })
      .def_prop_ro("width", [](const PyShardFolder& self) { return self.look().width(); })
      .def_prop_ro("vocabulary", [](const PyShardFolder& self) { return self.look().vocabulary(); })
      .def_prop_ro("layers", [](const PyShardFolder& self) { return self.look().layers(); })
      .def_prop_ro("slots", [](const PyShardFolder& self) { return self.look().slots(); })
      .def_prop_ro("state_nbytes", [](const PyShardFolder& self) { return self.look().state_bytes(); })
      .def_prop_ro("t_max", [](const PyShardFolder& self) { return self.look().t_max(); })
      .def_prop_ro("rope_half", [](const PyShardFolder& self) { return self.look().rope_half(); })
      .def_prop_ro("router_width", [](const PyShardFolder& self) { return self.look().router_width(); })
      .def_prop_ro("ropes", [](const PyShardFolder& self) { return self.look().ropes(); })
      .def("open", &PyShardFolder::open, nb::arg("name"), nb::rv_policy::take_ownership)
      .def("rope_rows", &PyShardFolder::rope_rows, nb::arg("rope"), nb::arg("first"), nb::arg("count"));
}

}  // namespace kvtide::python
