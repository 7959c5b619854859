#include "kvtide/coreml.h"

#include <cstring>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/run/convert.h"
#include "coreml/run/loaded.h"

namespace kvtide {
namespace {

using coreml::DataType;
using coreml::Tensor;

constexpr std::pair<CoremlType, DataType> kPublicTypes[] = {
    {CoremlType::f16, DataType::fp16},   {CoremlType::f32, DataType::fp32},
    {CoremlType::i32, DataType::int32},  {CoremlType::i16, DataType::int16},
    {CoremlType::u16, DataType::uint16}, {CoremlType::i8, DataType::int8},
    {CoremlType::u8, DataType::uint8},   {CoremlType::boolean, DataType::boolean}};

DataType inner_type(CoremlType type) {
  for (const auto& [outer, inner] : kPublicTypes)
    if (outer == type) return inner;
  refuse("an element type that there is not");
}

CoremlType outer_type(DataType type) {
  for (const auto& [outer, inner] : kPublicTypes)
    if (inner == type) return outer;
  throw Error(ErrorCode::unsupported, cat("tensors of ", coreml::name_of(type)));
}

// The caller's bytes, not copied: read only while the call runs.
Tensor tensor_of(const CoremlArray& array, std::string_view name) {
  Tensor tensor{inner_type(array.type), array.shape, nullptr};
  const auto elements = coreml::elements_of(array.shape);
  if (!elements || *elements * coreml::element_bytes(tensor.dtype) != array.bytes.size())
    refuse(cat(quoted(name), " has ", array.bytes.size(), " bytes for shape ", coreml::text_of(array.shape),
               " of ", coreml_type_name(array.type)));
  auto* bytes = const_cast<std::byte*>(array.bytes.data());
  tensor.data = std::shared_ptr<std::byte>(std::shared_ptr<void>(), bytes);
  return tensor;
}

CoremlArray array_of(const Tensor& tensor) {
  CoremlArray array{outer_type(tensor.dtype), tensor.shape, {}};
  array.bytes.assign(tensor.data.get(), tensor.data.get() + tensor.bytes());
  return array;
}

std::vector<CoremlFeature> public_features(const std::vector<coreml::Feature>& features) {
  std::vector<CoremlFeature> result;
  for (const coreml::Feature& each : features) {
    CoremlFeature& feature = result.emplace_back();
    feature = {each.name, outer_type(each.dtype), each.shape, each.shapes, {}, each.optional};
    for (const auto& [least, most] : each.ranges) feature.ranges.emplace_back(least, most);
  }
  return result;
}

}  // namespace

const char* coreml_type_name(CoremlType type) noexcept {
  for (const auto& [outer, inner] : kPublicTypes)
    if (outer == type) return coreml::name_of(inner).data();
  return "none";
}

struct CoremlState::Impl {
  coreml::StateTensors tensors;

  Tensor& named(std::string_view name) {
    std::string known;
    for (auto& each : tensors) {
      if (each.name == name) return each.tensor;
      known += cat(known.empty() ? "" : ", ", each.name);
    }
    refuse(cat("no state ", quoted(name), "; there are: ", known.empty() ? "none" : known));
  }
};

CoremlState::CoremlState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoremlState::~CoremlState() = default;
CoremlState::CoremlState(CoremlState&&) noexcept = default;
CoremlState& CoremlState::operator=(CoremlState&&) noexcept = default;

std::vector<std::string> CoremlState::names() const {
  return or_out_of_memory([&] {
    std::vector<std::string> names;
    for (const auto& each : impl_->tensors) names.push_back(each.name);
    return names;
  });
}

std::int64_t CoremlState::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& each : impl_->tensors) bytes += static_cast<std::int64_t>(each.tensor.bytes());
  return bytes;
}

CoremlArray CoremlState::read(std::string_view name) const {
  return or_out_of_memory([&] { return array_of(impl_->named(name)); });
}

void CoremlState::write(std::string_view name, const CoremlArray& value) {
  or_out_of_memory([&] {
    Tensor& state = impl_->named(name);
    const Tensor given = tensor_of(value, name);
    if (given.shape != state.shape)
      refuse(cat("state ", quoted(name), " has shape ", coreml::text_of(state.shape), ", not ",
                 coreml::text_of(given.shape)));
    if (coreml::is_float(given.dtype) != coreml::is_float(state.dtype))
      refuse(cat("state ", quoted(name), " is of ", coreml::name_of(state.dtype), ", not ",
                 coreml::name_of(given.dtype)));
    const Tensor fresh = coreml::zeroed_tensor(state.dtype, state.shape);
    constexpr std::int64_t kPiece = 1024;
    float floats[kPiece];
    std::int32_t integers[kPiece];
    for (std::int64_t at = 0; at < fresh.elements(); at += kPiece) {
      const std::int64_t n = std::min(kPiece, fresh.elements() - at);
      if (coreml::is_float(state.dtype)) {
        coreml::load(best_kernels(), given, at, n, floats);
        coreml::store(best_kernels(), floats, n, fresh, at);
      } else {
        coreml::load(best_kernels(), given, at, n, integers);
        coreml::store(best_kernels(), integers, n, fresh, at);
      }
    }
    state = fresh;
  });
}

CoremlState CoremlState::fork() const {
  return or_out_of_memory([&] {
    auto copy = std::make_unique<Impl>(*impl_);
    for (auto& each : copy->tensors) {
      const Tensor own = coreml::zeroed_tensor(each.tensor.dtype, each.tensor.shape);
      std::memcpy(own.data.get(), each.tensor.data.get(), own.bytes());
      each.tensor = own;
    }
    return CoremlState(std::move(copy));
  });
}

struct CoremlModel::Impl {
  std::string path, identity;
  std::unique_ptr<coreml::LoadedModel> model;
  std::vector<CoremlFunction> functions;
};

CoremlModel::CoremlModel(const std::string& path, const CoremlOptions& options) {
  or_out_of_memory([&] {
    const Kernels& kernels = options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels);
    impl_ = std::make_unique<Impl>();
    impl_->path = path;
    impl_->model = std::make_unique<coreml::LoadedModel>(
        coreml::open_package(path), ThreadPool::count(options.threads), kernels, options.function);
    for (const auto& each : impl_->model->description().functions)
      impl_->functions.push_back({each.name, public_features(each.inputs), public_features(each.outputs),
                                  public_features(each.states)});
  });
}
CoremlModel::~CoremlModel() = default;
CoremlModel::CoremlModel(CoremlModel&&) noexcept = default;
CoremlModel& CoremlModel::operator=(CoremlModel&&) noexcept = default;

const std::vector<CoremlFunction>& CoremlModel::functions() const { return impl_->functions; }
const std::string& CoremlModel::default_function() const {
  return impl_->model->description().default_function;
}
const std::vector<std::pair<std::string, std::string>>& CoremlModel::metadata() const {
  return impl_->model->description().metadata;
}

const CoremlFunction& CoremlModel::function(std::string_view name) const {
  return or_out_of_memory([&]() -> const CoremlFunction& {
    const std::string& wanted = impl_->model->described(name).name;
    for (const CoremlFunction& each : impl_->functions)
      if (each.name == wanted) return each;
    refuse(cat("no function ", quoted(name)));
  });
}

CoremlState CoremlModel::make_state(std::string_view function) const {
  return or_out_of_memory([&] {
    auto state = std::make_unique<CoremlState::Impl>();
    state->tensors = impl_->model->make_states(function);
    return CoremlState(std::move(state));
  });
}

std::map<std::string, CoremlArray> CoremlModel::predict(const std::map<std::string, CoremlArray>& inputs,
                                                        CoremlState* state, std::string_view function,
                                                        const std::function<bool()>& go_on) {
  return or_out_of_memory([&] {
    std::vector<coreml::NamedTensor> given;
    for (const auto& [name, array] : inputs) given.push_back({name, tensor_of(array, name)});
    std::map<std::string, CoremlArray> outputs;
    impl_->model->predict(function, given, state == nullptr ? nullptr : &state->impl_->tensors, go_on,
                          [&](const std::vector<coreml::NamedTensor>& values) {
                            for (const auto& each : values) outputs.emplace(each.name, array_of(each.tensor));
                          });
    return outputs;
  });
}

const std::string& CoremlModel::identity() const {
  return or_out_of_memory([&]() -> const std::string& {
    if (impl_->identity.empty()) impl_->identity = coreml::identity_of(coreml::open_package(impl_->path));
    return impl_->identity;
  });
}

CoremlReport CoremlModel::report() const {
  CoremlReport report;
  for (const CoremlFunction& each : impl_->functions) {
    try {
      const coreml::CallReport& one = impl_->model->executor(each.name).report();
      report.calls += one.calls;
      report.seconds += one.seconds;
      report.state_bytes_copied += one.state_bytes_copied;
    } catch (const Error&) {  // a function that was not loaded has no calls
    }
  }
  report.weight_bytes = impl_->model->weight_bytes();
  return report;
}

}  // namespace kvtide
