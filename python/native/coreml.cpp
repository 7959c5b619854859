#include "coreml.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

using Clock = std::chrono::steady_clock;

struct NumpyType {
  CoremlType type;
  const char* name;
  nb::dlpack::dtype dtype;
};

constexpr nb::dlpack::dtype dtype_of(nb::dlpack::dtype_code code, int bits) {
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
}

using Code = nb::dlpack::dtype_code;
constexpr NumpyType kNumpyTypes[] = {{CoremlType::f16, "float16", dtype_of(Code::Float, 16)},
                                     {CoremlType::f32, "float32", dtype_of(Code::Float, 32)},
                                     {CoremlType::i32, "int32", dtype_of(Code::Int, 32)},
                                     {CoremlType::i16, "int16", dtype_of(Code::Int, 16)},
                                     {CoremlType::u16, "uint16", dtype_of(Code::UInt, 16)},
                                     {CoremlType::i8, "int8", dtype_of(Code::Int, 8)},
                                     {CoremlType::u8, "uint8", dtype_of(Code::UInt, 8)},
                                     {CoremlType::boolean, "bool", dtype_of(Code::Bool, 8)}};

const NumpyType& numpy_type(CoremlType type) {
  for (const NumpyType& each : kNumpyTypes)
    if (each.type == type) return each;
  throw Error(ErrorCode::unsupported, "a type that NumPy does not have");
}

CoremlArray coreml_array_of(const nb::str& dtype, const nb::handle& shape, const CoremlBytes& bytes) {
  CoremlArray array;
  const std::string wanted = text_of(dtype);
  bool known = false;
  for (const NumpyType& each : kNumpyTypes)
    if (each.name == wanted) {
      array.type = each.type;
      known = true;
    }
  if (!known) throw Error(ErrorCode::invalid_argument, "arrays of " + wanted + " have no type in Core ML");
  array.shape = vector_of<std::int64_t>(shape, "shape");
  array.bytes.resize(bytes.size());
  if (bytes.size() > 0) std::memcpy(array.bytes.data(), bytes.data(), bytes.size());
  return array;
}

// `values` as a Python object that keeps them alive for the arrays that show them.
template <class T>
nb::capsule owner_of(std::unique_ptr<T> values) {
  nb::capsule owner(values.get(), [](void* p) noexcept { delete static_cast<T*>(p); });
  static_cast<void>(values.release());
  return owner;
}

// Takes no memory of ours: a call that went well must not fail for the lack of it.
nb::object numpy_of(CoremlArray& array, const nb::capsule& owner) {
  const auto* shape = reinterpret_cast<const std::size_t*>(array.shape.data());
  return nb::cast(nb::ndarray<nb::numpy>(array.bytes.data(), array.shape.size(), shape, owner, nullptr,
                                         numpy_type(array.type).dtype));
}

const CoremlFunction& function_of(const PyCoremlModel& model, const nb::str& name) {
  return model.open().function(text_of(name));
}

// (name, dtype, shape, enumerated shapes, ranges, optional) of each.
nb::object features_of(const std::vector<CoremlFeature>& features) {
  nb::list list;
  for (const CoremlFeature& each : features) {
    nb::list shapes, ranges;
    for (const auto& shape : each.shapes) shapes.append(nb::tuple(nb::cast(shape)));
    for (const auto& [least, most] : each.ranges) ranges.append(nb::make_tuple(least, most));
    list.append(nb::make_tuple(each.name, numpy_type(each.type).name, nb::tuple(nb::cast(each.shape)),
                               nb::tuple(shapes), nb::tuple(ranges), each.optional));
  }
  return list;
}

// Listens to Ctrl-C, to cancel() and to the interpreter's end, but takes the GIL only now and then: a call that writes one token
// has hundreds of operations.
class Listener {
 public:
  explicit Listener(const std::int64_t& cancels) : cancels_(cancels), before_(cancels) {}

  bool operator()() {
    constexpr auto kPause = std::chrono::milliseconds(20);
    if (stopping()) return false;
    const auto now = Clock::now();
    if (now - heard_ < kPause) return true;
    const WithGil back_in_python;
    in_python([] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
    heard_ = Clock::now();
    return cancels_ == before_;
  }

 private:
  const std::int64_t& cancels_;
  const std::int64_t before_;
  Clock::time_point heard_ = Clock::now();
};

nb::object lint(const nb::bytes& path, const nb::bytes& tokenizer, bool run, int threads) {
  const std::string package = text_of(path), folder = text_of(tokenizer);
  CoremlOptions options;
  options.threads = threads;
  std::vector<CoremlFinding> findings;
  {
    const Running running;
    const WithoutGil others_run;
    if (run) findings = lint_coreml_calls(package, options);
    for (CoremlFinding& each : lint_coreml(package, folder)) findings.push_back(std::move(each));
  }
  nb::list list;
  for (const CoremlFinding& each : findings)
    list.append(
        nb::make_tuple(each.severity, each.rule, each.function, each.operation, each.line, each.message));
  return list;
}

CoremlWeights weights_named(const std::string& name) {
  constexpr std::pair<const char*, CoremlWeights> kNames[] = {{"f16", CoremlWeights::f16},
                                                              {"int8-tensor", CoremlWeights::int8_tensor},
                                                              {"int8-channel", CoremlWeights::int8_channel},
                                                              {"int4", CoremlWeights::int4}};
  for (const auto& [each, weights] : kNames)
    if (name == each) return weights;
  throw Error(ErrorCode::invalid_argument,
              "weights must be f16, int8-tensor, int8-channel or int4, not " + name);
}

void write_packages(const nb::bytes& model, const nb::bytes& path, int chunks, std::int64_t least,
                    std::int64_t most, const Sequence<std::int64_t>& sizes, std::int64_t slots,
                    const nb::str& weights, bool replace, int threads, const nb::object& progress) {
  const std::string from = text_of(model), to = text_of(path);
  CoremlExport how;
  how.chunks = chunks;
  how.least_tokens = least;
  how.most_tokens = most;
  how.token_sizes = vector_of<std::int64_t>(sizes, "tokens");
  how.slots = slots;
  how.weights = weights_named(text_of(weights));
  how.replace = replace;
  how.threads = threads;
  how.on_package = [&](const std::string& package) {
    if (stopping()) throw Error(ErrorCode::cancelled, "the interpreter is ending; nothing was exported");
    const WithGil back_in_python;
    in_python([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!progress.is_none()) progress(nb::str(package.data(), package.size()));
    });
  };
  const Running running;
  const WithoutGil others_run;
  export_coreml(from, to, how);
}

nb::bytes inspect(const nb::bytes& path) {
  const std::string package = text_of(path);
  std::string json;
  {
    const Running running;
    const WithoutGil others_run;
    json = inspect_coreml(package);
  }
  return nb::bytes(json.data(), json.size());
}

}  // namespace

PyCoremlState::~PyCoremlState() {
  if (turns_.abandoned()) new CoremlState(std::move(state_));  // is never destroyed
}

nb::object PyCoremlState::read(const nb::str& name) {
  const std::string wanted = text_of(name);
  const Turn turn(turns_);
  auto read = std::make_unique<CoremlArray>();
  CoremlArray& array = *read;
  {
    const WithoutGil others_run;
    array = state_.read(wanted);
  }
  return numpy_of(array, owner_of(std::move(read)));
}

void PyCoremlState::write(const nb::str& name, const nb::str& dtype, const CoremlShape& shape,
                          const CoremlBytes& bytes) {
  const std::string wanted = text_of(name);
  const CoremlArray array = coreml_array_of(dtype, shape, bytes);
  const Turn turn(turns_);
  const WithoutGil others_run;
  state_.write(wanted, array);
}

PyCoremlState* PyCoremlState::fork() {
  const Turn turn(turns_);
  std::optional<CoremlState> copy;
  {
    const WithoutGil others_run;
    copy.emplace(state_.fork());
  }
  return new PyCoremlState(std::move(*copy));
}

PyCoremlModel::PyCoremlModel(const nb::bytes& path, const nb::str& function, int threads,
                             const nb::str& kernels) {
  const std::string package = text_of(path);
  CoremlOptions options;
  options.threads = threads;
  options.kernels = text_of(kernels);
  options.function = text_of(function);
  const Running running;
  const WithoutGil others_run;
  model_ = std::make_unique<CoremlModel>(package, options);
}

PyCoremlModel::~PyCoremlModel() {
  if (turns_.abandoned()) static_cast<void>(model_.release());
}

const CoremlModel& PyCoremlModel::open() const {
  if (!model_) throw Misuse("closed", "this model was closed");
  return *model_;
}

void PyCoremlModel::close() {
  if (!model_) return;
  const Turn turn(turns_);  // not while it computes
  model_.reset();
}

PyCoremlState* PyCoremlModel::make_state(const nb::str& function) const {
  return new PyCoremlState(open().make_state(text_of(function)));
}

PyCoremlState* PyCoremlModel::make_state_from(PyCoremlState& from, std::int64_t position,
                                              const nb::str& function) const {
  const CoremlModel& model = open();
  const std::string called = text_of(function);
  const Turn turn(from.turns_);
  std::optional<CoremlState> made;
  {
    const WithoutGil others_run;
    made.emplace(model.make_state_from(from.state_, position, called));
  }
  return new PyCoremlState(std::move(*made));
}

void PyCoremlModel::save_state(PyCoremlState& state, const nb::bytes& path) {
  open();
  const std::string file = text_of(path);
  const Turn turn(turns_);
  const Turn of_state(state.turns_);
  const WithoutGil others_run;
  model_->save_state(state.state_, file);
}

PyCoremlState* PyCoremlModel::load_state(const nb::bytes& path, const nb::str& function) {
  open();
  const std::string file = text_of(path), called = text_of(function);
  const Turn turn(turns_);
  std::optional<CoremlState> made;
  {
    const WithoutGil others_run;
    made.emplace(model_->load_state(file, called));
  }
  return new PyCoremlState(std::move(*made));
}

nb::object PyCoremlModel::predict(const CoremlInputs& inputs, PyCoremlState* state, const nb::str& function) {
  std::map<std::string, CoremlArray> given;
  for (const nb::handle item : inputs) {
    const auto one = item_of<nb::tuple>(item, "inputs");
    CoremlBytes bytes;
    if (one.size() != 4 || !nb::try_cast(one[3], bytes)) throw nb::type_error("inputs holds another item");
    given[text_of(item_of<nb::str>(one[0], "inputs"))] =
        coreml_array_of(item_of<nb::str>(one[1], "inputs"), one[2], bytes);
  }
  const std::string called = text_of(function);
  open();
  const Turn turn(turns_);
  std::optional<Turn> of_state;
  if (state != nullptr) of_state.emplace(state->turns_);
  Listener listener(cancels_);
  auto computed = std::make_unique<std::map<std::string, CoremlArray>>();  // before a state goes on
  auto& outputs = *computed;
  const nb::capsule owner = owner_of(std::move(computed));
  {
    const WithoutGil others_run;
    outputs = model_->predict(given, state == nullptr ? nullptr : &state->state_, called,
                              [&] { return listener(); });
  }
  nb::dict result;
  for (auto& [name, array] : outputs) result[nb::str(name.data(), name.size())] = numpy_of(array, owner);
  return result;
}

void bind_coreml(nb::module_& module) {
  module.def("coreml_lint", &lint, nb::arg("path"), nb::arg("tokenizer"), nb::arg("run"), nb::arg("threads"),
             "What is wrong with a package.");
  module.def("coreml_export", &write_packages, nb::arg("model"), nb::arg("path"), nb::arg("chunks"),
             nb::arg("least"), nb::arg("most"), nb::arg("sizes"), nb::arg("slots"), nb::arg("weights"),
             nb::arg("replace"), nb::arg("threads"), nb::arg("progress").none(),
             "Writes stateful packages of a model.");
  module.def("coreml_inspect", &inspect, nb::arg("path"), "What a package holds, as JSON.");
  nb::class_<PyCoremlState>(module, "CoremlState", "The states of one sequence.")
      .def_prop_ro("names", [](const PyCoremlState& self) { return self.look().names(); })
      .def_prop_ro("nbytes", [](const PyCoremlState& self) { return self.look().bytes(); })
      .def("read", &PyCoremlState::read, nb::arg("name"))
      .def("write", &PyCoremlState::write, nb::arg("name"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("bytes").noconvert())
      .def("fork", &PyCoremlState::fork, nb::rv_policy::take_ownership);
  nb::class_<PyCoremlModel>(module, "CoremlModel", "A package whose functions can be called.")
      .def(nb::init<const nb::bytes&, const nb::str&, int, const nb::str&>(), nb::arg("path"),
           nb::arg("function"), nb::arg("threads"), nb::arg("kernels"))
      .def("close", &PyCoremlModel::close)
      .def_prop_ro("closed", &PyCoremlModel::closed)
      .def("cancel", &PyCoremlModel::cancel)
      .def_prop_ro("busy", &PyCoremlModel::busy)
      .def_prop_ro("functions",
                   [](const PyCoremlModel& self) {
                     std::vector<std::string> names;
                     for (const CoremlFunction& each : self.open().functions()) names.push_back(each.name);
                     return names;
                   })
      .def_prop_ro("default_function",
                   [](const PyCoremlModel& self) { return self.open().default_function(); })
      .def_prop_ro("metadata",
                   [](const PyCoremlModel& self) -> nb::object {
                     nb::dict texts;
                     for (const auto& [name, text] : self.open().metadata())
                       texts[nb::str(name.data(), name.size())] = nb::str(text.data(), text.size());
                     return texts;
                   })
      .def(
          "inputs",
          [](const PyCoremlModel& self, const nb::str& name) {
            return features_of(function_of(self, name).inputs);
          },
          nb::arg("function"))
      .def(
          "outputs",
          [](const PyCoremlModel& self, const nb::str& name) {
            return features_of(function_of(self, name).outputs);
          },
          nb::arg("function"))
      .def(
          "states",
          [](const PyCoremlModel& self, const nb::str& name) {
            return features_of(function_of(self, name).states);
          },
          nb::arg("function"))
      .def_prop_ro("report",
                   [](const PyCoremlModel& self) -> nb::object {
                     const CoremlReport report = self.open().report();
                     return nb::make_tuple(report.calls, report.seconds, report.state_bytes_copied,
                                           report.weight_bytes);
                   })
      .def("make_state", &PyCoremlModel::make_state, nb::arg("function"), nb::rv_policy::take_ownership)
      .def("make_state_from", &PyCoremlModel::make_state_from, nb::arg("state"), nb::arg("position"),
           nb::arg("function"), nb::rv_policy::take_ownership)
      .def("save_state", &PyCoremlModel::save_state, nb::arg("state"), nb::arg("path"))
      .def("load_state", &PyCoremlModel::load_state, nb::arg("path"), nb::arg("function"),
           nb::rv_policy::take_ownership)
      .def("predict", &PyCoremlModel::predict, nb::arg("inputs"), nb::arg("state").none(),
           nb::arg("function"));
}

}  // namespace kvtide::python
