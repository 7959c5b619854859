#include "state.h"

#include <span>
#include <utility>

#include "kvtide/error.h"
#include "misuse.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// What an array that looks into a state owns.
class Pin {
 public:
  Pin(const RowsView& rows, std::shared_ptr<Views> views)
      : memory_(rows.pin), views_(std::move(views)), entry_(views_->add(rows.positions)) {}
  ~Pin() { views_->remove(entry_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  std::shared_ptr<const void> memory_;
  std::shared_ptr<Views> views_;
  Views::Entry entry_;
};

ElementType type_of(const StateShape& shape, KvPart part) {
  return part == KvPart::keys ? shape.key_type : shape.value_type;
}

}  // namespace

PyState::PyState(nb::object session)
    : session_object_(std::move(session)), session_(nb::cast<PySession*>(session_object_)) {
  session_->check_open();
  model_ = session_->model();
}

PyState::PyState(State state, std::shared_ptr<const Model> model)
    : own_(std::make_unique<State>(std::move(state))), model_(std::move(model)) {}

PyState::~PyState() {
  if (own_turns_.abandoned()) static_cast<void>(own_.release());
}

const State& PyState::look() const {
  if (closed_) throw Misuse("closed", "this state was closed");
  if (session_ == nullptr) return *own_;
  session_->check_open();
  return session_->state();
}

StateNumbers PyState::numbers() const {
  const State& state = look();
  return session_ != nullptr ? session_->numbers() : numbers_of(state);
}

StateShape PyState::shape() const {
  const State& state = look();
  return session_ != nullptr ? session_->shape() : state.shape();
}

PyState* PyState::load(const std::string& path) {
  const Running running;
  std::optional<State> state;
  {
    const WithoutGil others_run;
    state.emplace(State::load(path));
  }
  return new PyState(std::move(*state));
}

void PyState::save(const std::string& path, const std::string& cache) {
  look();
  if (session_ != nullptr) return session_->save(path, cache);
  const Turn turn(own_turns_);
  const WithoutGil others_run;
  if (model_) own_->set_identity(model_->identity(cache));
  own_->save(path);
}

PyState* PyState::fork() {
  return in_turn([&](const State& state) {
    auto made = std::make_unique<PyState>(state.fork(), model_);
    if (session_ != nullptr) session_->note_position();  // its rows are shared now
    return made.release();
  });
}

TransitionPlan PyState::plan(const Transition& transition) {
  return in_turn([&](const State& state) { return state.plan(transition); });
}

TransitionRecord PyState::apply(const Transition& transition) {
  look();
  if (session_ != nullptr) return session_->apply(transition);
  const Turn turn(own_turns_);
  const TransitionPlan plan = own_->plan(transition);
  if (plan) own_views_->check_free(plan);  // what cannot be done at all is said first
  return own_->apply(plan);
}

void PyState::replace(PyState& other) {
  look();
  other.look();
  if (other.session_ != nullptr || &other == this)
    throw Error(ErrorCode::invalid_argument, "a state is replaced by another one that is no session's");
  if (session_ != nullptr) {
    session_->restore(other);
  } else {
    const Turn turn(own_turns_), theirs(other.own_turns_);
    own_views_->check_none("replace the rows");
    std::swap(own_, other.own_);
    model_ = other.model_;
  }
}

nb::object PyState::view(int layer, KvPart part, const PosRange& positions) {
  return in_turn([&](const State& state) -> nb::object {
    const RowsView rows = state.view(layer, part, positions);
    const StateShape shape = state.shape();
    const ElementType type = type_of(shape, part);
    const auto head_dim = shape.layers[static_cast<std::size_t>(layer)].head_dim;
    const std::int64_t item = type == ElementType::f32 ? 4 : type == ElementType::f16 ? 2 : 1;
    const auto& views = session_ != nullptr ? session_->views() : own_views_;
    auto pin = std::make_unique<Pin>(rows, views);
    const nb::capsule owner(pin.get(), [](void* p) noexcept { delete static_cast<Pin*>(p); });
    static_cast<void>(pin.release());
    const std::size_t sizes[3] = {static_cast<std::size_t>(rows.kv_heads),
                                  static_cast<std::size_t>(positions.size()),
                                  static_cast<std::size_t>(item == 1 ? rows.row_bytes : head_dim)};
    const std::int64_t strides[3] = {rows.head_stride / item, rows.row_stride / item, 1};
    nb::dlpack::dtype dtype = nb::dtype<std::uint8_t>();
    if (item == 4) dtype = nb::dtype<float>();
    if (item == 2) dtype = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    return nb::cast(nb::ndarray<nb::numpy, nb::ro>(rows.data, 3, sizes, owner, strides, dtype));
  });
}

void PyState::read(int layer, KvPart part, const PosRange& positions, const Floats& rows) {
  in_turn([&](const State& state) {
    const WithoutGil others_run;
    state.read(layer, part, positions, {rows.data(), rows.size()});
  });
}

void PyState::write(int layer, KvPart part, const PosRange& positions, const ConstFloats& rows) {
  look();
  if (session_ != nullptr)
    throw Error(ErrorCode::invalid_argument, "a session's rows are written as a whole");
  const Turn turn(own_turns_);
  const WithoutGil others_run;
  own_->write(layer, part, positions, {rows.data(), rows.size()});
}

void PyState::write_raw(int layer, KvPart part, const PosRange& positions, const RawRows& rows) {
  look();
  if (session_ != nullptr)
    throw Error(ErrorCode::invalid_argument, "a session's rows are written as a whole");
  const Turn turn(own_turns_);
  const WithoutGil others_run;
  own_->write_raw(layer, part, positions, std::as_bytes(std::span(rows.data(), rows.size())));
}

void PyState::close() {
  if (closed_) return;
  if (session_ == nullptr) {
    const Turn turn(own_turns_);
    own_.reset();
  }
  closed_ = true;
}

}  // namespace kvtide::python
