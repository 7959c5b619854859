#include "session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "kvtide/error.h"
#include "misuse.h"
#include "running.h"

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

// One call: from the checks until the session is free for the next.
class PySession::Use {
 public:
  explicit Use(PySession& session) : session_(session) {
    session.check_open();
    if (::getpid() != session.process_)
      throw Misuse(
          "busy",
          "this session belongs to the process that made it; after a fork, make a new one from the model");
    if (session.busy_)
      throw Misuse("busy",
                   "this session is in the middle of another call; a session serves one caller at a time");
    session.busy_ = true;
  }
  ~Use() { session_.busy_ = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const Running running_;
  PySession& session_;
};

PySession::PySession(const PyModel& model, const SessionOptions& options)
    : model_(model.open()), process_(::getpid()) {
  {
    const Running running;
    const nb::gil_scoped_release others_run;
    session_ = std::make_unique<Session>(*model_, options);
  }
  options_ = session_->options();
  note_position();
}

PySession::~PySession() {
  // The threads of a session do not exist in a forked child: waiting for them would never end.
  if (::getpid() != process_) static_cast<void>(session_.release());
}

void PySession::check_open() const {
  if (!session_) throw Misuse("closed", "this session was closed");
}

void PySession::note_position() {
  position_ = session_->position();
  memory_ = session_->memory();
}

void PySession::read_with(const Ids& ids, ReadOptions options, const nb::object& progress) {
  const std::vector<TokenId> tokens(ids.data(), ids.data() + ids.size());  // nobody changes these meanwhile
  const Use use(*this);
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t cancels_before = cancels_;
  options.progress = [&](std::int64_t done) {
    const nb::gil_scoped_acquire back_in_python;
    ++changes_;
    note_position();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.is_none() && progress(done, total).is(nb::handle(Py_False))) return false;
    // A cancel that comes when all is read comes too late.
    return done == total || (cancels_ == cancels_before && !stopping());
  };
  const nb::gil_scoped_release others_run;
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
  options.logits_from = position_;
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
  const Pos start = position_;
  options.logits_from = start;
  options.on_logits = [&](Pos position, std::span<const float> row) {
    const auto next = static_cast<std::size_t>(position - start + 1);
    if (next < count) out[next] = log_probability_of(row, tokens[next]);
  };
  read_with(ids, std::move(options), progress);
}

void PySession::advance(TokenId token) {
  const Use use(*this);
  {
    const nb::gil_scoped_release others_run;
    session_->read({&token, 1});
  }
  ++changes_;
  note_position();
}

nb::object PySession::logits() {
  const Use use(*this);
  const auto logits = session_->logits();
  auto* copy = new std::vector<float>(logits.begin(), logits.end());
  const nb::capsule owner(copy, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(copy->data(), {copy->size()}, owner));
}

TokenId PySession::pick(Sampler& sampler, const std::vector<TokenId>& recent) {
  const Use use(*this);
  for (const TokenId token : recent)
    if (token < 0 || token >= model_->vocabulary())
      throw Error(ErrorCode::invalid_argument, "the history holds token id " + std::to_string(token) +
                                                   ", which is outside the vocabulary of " +
                                                   std::to_string(model_->vocabulary()));
  if (session_->logits().empty())
    throw Error(ErrorCode::invalid_argument, "nothing was read yet, so there is nothing to continue");
  const nb::gil_scoped_release others_run;
  return sampler.pick(session_->logits(), recent);
}

double PySession::log_probability(TokenId token) {
  const Use use(*this);
  const auto logits = session_->logits();
  if (token < 0 || static_cast<std::size_t>(token) >= logits.size())
    throw Error(ErrorCode::invalid_argument, "no logit belongs to token id " + std::to_string(token));
  const nb::gil_scoped_release others_run;
  return log_probability_of(logits, token);
}

Generated PySession::generate(GenerateOptions options, const nb::object& on_text) {
  const Use use(*this);
  if (session_->logits().empty())
    throw Error(ErrorCode::invalid_argument, "nothing was read yet, so there is nothing to continue");
  const std::int64_t cancels_before = cancels_;
  // Called once for every token, with or without text: on_text alone would leave Ctrl-C waiting.
  options.on_logits = [&](std::span<const float>) {
    const nb::gil_scoped_acquire back_in_python;
    ++changes_;
    note_position();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (cancels_ != cancels_before || stopping())
      throw Error(ErrorCode::cancelled, "the answer was cancelled");
  };
  if (!on_text.is_none())
    options.on_text = [&](std::string_view text) {
      const nb::gil_scoped_acquire back_in_python;
      return !on_text(nb::str(text.data(), text.size())).is(nb::handle(Py_False));
    };
  struct Noting {  // also when an exception ends it
    PySession& self;
    ~Noting() {
      ++self.changes_;
      self.note_position();
    }
  } const noting{*this};
  const nb::gil_scoped_release others_run;
  return kvtide::generate(*session_, options);
}

void PySession::clear() {
  const Use use(*this);
  session_->clear();
  ++changes_;
  note_position();
}

void PySession::close() {
  if (!session_) return;
  const Use use(*this);
  session_.reset();
  position_ = 0;
  memory_ = {};
}

}  // namespace kvtide::python
