#include "session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "arrays.h"
#include "kvtide/error.h"
#include "misuse.h"
#include "procedural.h"
#include "running.h"
#include "state.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

double log_probability_of(std::span<const float> logits, TokenId token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - highest - std::log(sum);
}

}  // namespace

StateNumbers numbers_of(const State& state) {
  StateNumbers n;
  n.position = state.position();
  n.rows = state.rows();
  n.capacity = state.capacity();
  n.room = n.capacity - n.rows;
  n.held_bytes = state.held_bytes();
  n.shared_bytes = state.shared_bytes();
  n.capacity_bytes = state.capacity_bytes();
  n.attention_size = state.attention_size();
  n.budget = state.budget();
  return n;
}

// One call: from the checks until the session is free for the next.
class PySession::Use {
 public:
  explicit Use(PySession& session) : turn_((session.check_open(), session.turns_)) {}

 private:
  const Turn turn_;
};

PySession::PySession(const PyModel& model, const SessionOptions& options) : model_(model.open()) {
  {
    const Running running;
    const WithoutGil others_run;
    session_ = std::make_unique<Session>(*model_, options);
  }
  note_memory();
}

PySession::PySession(std::shared_ptr<const Model> model, Session session)
    : model_(std::move(model)), session_(std::make_unique<Session>(std::move(session))) {
  note_memory();
}

PySession::~PySession() {
  if (turns_.abandoned()) static_cast<void>(session_.release());
}

void PySession::check_open() const {
  if (!session_) throw Misuse("closed", "this session was closed");
}

void PySession::check_logits() const {
  if (!session_->logits().empty()) return;
  throw Error(ErrorCode::invalid_argument, why_no_logits());
}

std::string PySession::why_no_logits() const {
  if (interrupted_ != kNotInterrupted) {
    const auto [done, total] = interrupted_;
    const std::string rest = std::to_string(total - done);
    return "the newest reading was interrupted after " + std::to_string(done) + " of " +
           std::to_string(total) + " tokens, so there are no logits to go on from; read the other " + rest +
           (rest == "1" ? " token" : " tokens") + ", or clear() and start again";
  }
  if (numbers_.position == 0)
    return "nothing was read yet, so there is nothing to continue; read a text first";
  return "the newest positions were taken back or replaced, and their logits with them; read a token before "
         "going on";
}

void PySession::check_history(const std::vector<TokenId>& recent) const {
  for (const TokenId token : recent)
    if (token < 0 || token >= model_->vocabulary())
      throw Error(ErrorCode::invalid_argument, "the history holds token id " + std::to_string(token) +
                                                   ", which is outside the vocabulary of " +
                                                   std::to_string(model_->vocabulary()));
}

void PySession::note_position() noexcept {
  numbers_ = numbers_of(session_->state());
  numbers_.room = session_->room();
  memory_ = session_->memory();
  try {
    if (!shape_is_known_) shape_ = session_->state().shape();
    shape_is_known_ = true;
    SessionOptions now = session_->options();
    options_ = std::move(now);
  } catch (const std::exception&) {  // no memory for a copy: it is made the next time
  }
}

void PySession::note_memory() noexcept {
  shape_is_known_ = false;
  note_position();
}

void PySession::read_with(const Ids& ids, ReadOptions options, const nb::object& progress) {
  read_with(std::vector<TokenId>(ids.data(), ids.data() + ids.size()),  // nobody changes these meanwhile
            std::move(options), progress);
}

void PySession::read_with(const std::vector<TokenId>& tokens, ReadOptions options,
                          const nb::object& progress) {
  const Use use(*this);
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t cancels_before = cancels_;
  options.progress = [&](std::int64_t done) {
    const WithGil back_in_python;
    ++changes_;
    note_position();
    const bool go_on = in_python([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return progress.is_none() || !progress(done, total).is(nb::handle(Py_False));
    });
    // A cancel that comes when all is read comes too late.
    return go_on && (done == total || (cancels_ == cancels_before && !stopping()));
  };
  // An end in the middle, by an exception of whatever kind, is remembered for those who want to go on.
  struct Noting {
    PySession& self;
    const Pos before;
    const std::int64_t total;
    ~Noting() {
      const std::int64_t done = self.numbers_.position - before;
      if (done > 0) self.interrupted_ = done < total ? std::pair(done, total) : kNotInterrupted;
    }
  } const noting{*this, session_->position(), total};
  const WithoutGil others_run;
  session_->read(tokens, options);
}

void PySession::read(const Ids& ids, const nb::object& progress) { read_with(ids, {}, progress); }

void PySession::read_logits(const Ids& ids, const FloatRows& rows, const nb::object& progress) {
  const auto vocabulary = static_cast<std::size_t>(model_->vocabulary());
  if (rows.shape(0) != ids.size() || rows.shape(1) != vocabulary)
    throw Error(ErrorCode::invalid_argument, "the rows of logits must be [tokens][vocabulary]");
  check_open();
  float* out = rows.data();
  ReadOptions options;
  options.logits_from = numbers_.position;
  options.on_logits = [&](Pos, std::span<const float> row) {
    std::memcpy(out, row.data(), row.size_bytes());
    out += row.size();
  };
  read_with(ids, std::move(options), progress);
}

void PySession::score(const Ids& ids, const Doubles& log_probabilities, const nb::object& progress) {
  const std::size_t count = ids.size();
  if (log_probabilities.size() != count)
    throw Error(ErrorCode::invalid_argument, "there must be one log-probability for each token");
  if (count == 0) return;
  const std::vector<TokenId> tokens(ids.data(), ids.data() + count);
  for (const TokenId token : tokens)  // the first is looked up before read() checks them
    if (token < 0 || token >= model_->vocabulary())
      throw Error(ErrorCode::invalid_argument, "token id " + std::to_string(token) +
                                                   " is outside the vocabulary of " +
                                                   std::to_string(model_->vocabulary()));
  double* out = log_probabilities.data();
  std::fill(out, out + count, std::numeric_limits<double>::quiet_NaN());
  {
    const Use use(*this);
    const auto before = session_->logits();
    if (!before.empty()) out[0] = log_probability_of(before, tokens[0]);
  }
  ReadOptions options;
  const Pos start = numbers_.position;
  options.logits_from = start;
  options.on_logits = [&](Pos position, std::span<const float> row) {
    const auto next = static_cast<std::size_t>(position - start + 1);
    if (next < count) out[next] = log_probability_of(row, tokens[next]);
  };
  read_with(ids, std::move(options), progress);
}

std::int64_t PySession::advance(TokenId token, std::int64_t changes_before) {
  const Use use(*this);
  if (changes_ != changes_before)
    throw Misuse("busy", "the session was used by someone else since this generation began; start a new one");
  {
    const WithoutGil others_run;
    session_->read({&token, 1});
  }
  note_step();
  return changes_;
}

void PySession::note_step() noexcept {
  interrupted_ = kNotInterrupted;
  ++changes_;
  note_position();
}

nb::object PySession::logits() {
  const Use use(*this);
  const auto logits = session_->logits();
  return array_of(std::make_unique<std::vector<float>>(logits.begin(), logits.end()));
}

TokenId PySession::pick(Sampler& sampler, const std::vector<TokenId>& recent) {
  const Use use(*this);
  check_history(recent);
  check_logits();
  const WithoutGil others_run;
  return sampler.pick(session_->logits(), recent);
}

// A copy of the logits that the caller gave: nobody changes it meanwhile.
std::vector<float> PySession::checked_logits(const ConstLogits& logits) const {
  if (logits.size() != static_cast<std::size_t>(model_->vocabulary()))
    throw Error(ErrorCode::invalid_argument, "there must be one logit for each of the " +
                                                 std::to_string(model_->vocabulary()) + " tokens, not " +
                                                 std::to_string(logits.size()));
  return {logits.data(), logits.data() + logits.size()};
}

TokenId PySession::pick_held(Sampler& sampler, const FormPlace& place, const nb::object& logits,
                             const std::vector<TokenId>& recent, const std::vector<TokenId>& ends) {
  const Use use(*this);
  check_history(recent);
  check_logits();
  std::vector<float> held = logits.is_none()
                                ? std::vector<float>(session_->logits().begin(), session_->logits().end())
                                : checked_logits(nb::cast<ConstLogits>(logits));
  place.hold(held, ends);  // under the GIL: another thread may go on in the same form
  const WithoutGil others_run;
  return sampler.pick(held, recent);
}

TokenId PySession::pick_from(Sampler& sampler, const ConstLogits& logits,
                             const std::vector<TokenId>& recent) {
  const Use use(*this);
  check_history(recent);
  const std::vector<float> kept = checked_logits(logits);
  const WithoutGil others_run;
  return sampler.pick(kept, recent);
}

double PySession::log_probability(TokenId token) {
  const Use use(*this);
  const auto logits = session_->logits();
  if (token < 0 || static_cast<std::size_t>(token) >= logits.size())
    throw Error(ErrorCode::invalid_argument, "no logit belongs to token id " + std::to_string(token));
  const WithoutGil others_run;
  return log_probability_of(logits, token);
}

Generated PySession::generate(GenerateOptions options, const nb::object& on_text) {
  const Use use(*this);
  check_logits();
  const std::int64_t cancels_before = cancels_;
  // Called once for every token, with or without text: on_text alone would leave Ctrl-C waiting.
  options.on_logits = [&](std::span<const float>) {
    const WithGil back_in_python;
    ++changes_;
    note_position();
    in_python([] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
    if (cancels_ != cancels_before || stopping())
      throw Error(ErrorCode::cancelled, "the answer was cancelled");
  };
  if (!on_text.is_none())
    options.on_text = [&](std::string_view text) {
      const WithGil back_in_python;
      return in_python([&] { return !on_text(nb::str(text.data(), text.size())).is(nb::handle(Py_False)); });
    };
  struct Noting {  // also when an exception ends it
    PySession& self;
    ~Noting() {
      ++self.changes_;
      self.note_position();
    }
  } const noting{*this};
  const WithoutGil others_run;
  return kvtide::generate(*session_, options);
}

TransitionRecord PySession::apply(const Transition& transition) {
  const Use use(*this);
  const TransitionPlan plan = session_->plan(transition);
  if (plan) views_->check_free(plan);  // what cannot be done at all is said first
  const TransitionRecord record = session_->apply(transition);
  if (std::holds_alternative<Truncate>(transition)) {
    interrupted_ = kNotInterrupted;
    ++changes_;
  }
  note_position();
  return record;
}

TransitionRecord PySession::truncate(Pos length, const nb::object& progress) {
  std::vector<TokenId> again;
  {
    const Use use(*this);
    const TransitionPlan plan = session_->plan(Truncate{length, true});
    if (plan) {
      const auto end = session_->tokens().begin() + length;
      again.assign(end - plan.expected().read_again, end);
    }
  }
  const TransitionRecord record = apply(Truncate{length, true});
  ReadOptions options;
  options.need_logits = false;
  if (!again.empty()) read_with(again, std::move(options), progress);
  return record;
}

bool PySession::checkpoint() {
  const Use use(*this);
  const bool made = session_->checkpoint();
  note_position();
  return made;
}

std::vector<Pos> PySession::checkpoints() {
  const Use use(*this);
  return session_->checkpoints();
}

nb::object PySession::procedural() {
  const Use use(*this);
  return procedural_dict(session_->procedural_counts());
}

void PySession::pin(Pos first, Pos last) {
  const Use use(*this);
  session_->pin({first, last});
}

PySession* PySession::fork() {
  const Use use(*this);
  std::optional<Session> forked;
  {
    const WithoutGil others_run;
    forked.emplace(session_->fork());
  }
  note_position();  // rows are shared now
  auto made = std::make_unique<PySession>(model_, std::move(*forked));
  made->interrupted_ = interrupted_;
  return made.release();
}

void PySession::save(const std::string& path, const std::string& cache) {
  const Use use(*this);
  const WithoutGil others_run;
  session_->save(path, cache);
}

void PySession::load(const std::string& path, const std::string& cache) {
  const Use use(*this);
  views_->check_none("load another memory");
  {
    const WithoutGil others_run;
    session_->load(path, cache);
  }
  interrupted_ = kNotInterrupted;
  ++changes_;
  note_memory();
}

void PySession::restore(PyState& state) {
  if (state.session_ == this) return;  // it is what it is
  const State& theirs = state.look();
  if (state.model() && state.model() != model_)
    throw Error(ErrorCode::invalid_argument, "the state belongs to another model than the session");
  const Use use(*this);
  const Turn turn(state.turns());
  views_->check_none("restore another memory");
  {
    const WithoutGil others_run;
    session_->restore(theirs);
  }
  interrupted_ = kNotInterrupted;
  ++changes_;
  note_memory();
}

nb::object PySession::tokens() {
  const Use use(*this);
  return array_of(std::make_unique<std::vector<TokenId>>(session_->tokens()));
}

void PySession::clear() {
  const Use use(*this);
  views_->check_none("clear");
  session_->clear();
  interrupted_ = kNotInterrupted;
  ++changes_;
  note_position();
}

void PySession::close() {
  if (!session_) return;
  const Use use(*this);
  session_.reset();
  numbers_ = {};
  memory_ = {};
}

}  // namespace kvtide::python
