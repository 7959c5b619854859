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
#include "procedural.h"
#include "session.h"
#include "state.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

void make_sampler(Sampler* self, float temperature, int top_k, float top_p, float min_p, float repeat_penalty,
                  int repeat_last, std::uint64_t seed) {
  new (self) Sampler({.temperature = temperature,
                      .top_k = top_k,
                      .top_p = top_p,
                      .min_p = min_p,
                      .repeat_penalty = repeat_penalty,
                      .repeat_last = repeat_last,
                      .seed = seed});
}

AnswerForm form_of(const PyModel& model, const nb::bytes& json_schema, const nb::bytes& grammar) {
  const Tokenizer& tokenizer = model.open()->tokenizer();
  const std::string_view schema = view_of(json_schema), rules = view_of(grammar);
  return schema.empty() ? AnswerForm::gbnf(tokenizer, rules) : AnswerForm::json_schema(tokenizer, schema);
}

void bind_forms(nb::module_& module) {
  nb::class_<AnswerForm>(module, "AnswerForm", "What answers are held to.")
      .def(
          "__init__",
          [](AnswerForm* self, const PyModel& model, const nb::bytes& json_schema, const nb::bytes& grammar) {
            new (self) AnswerForm(form_of(model, json_schema, grammar));
          },
          nb::arg("model"), nb::arg("json_schema"), nb::arg("grammar"), "One of the two is empty.");
  nb::class_<FormPlace>(module, "FormPlace", "How far one answer has come in its form.")
      .def(
          "__init__", [](FormPlace* self, const AnswerForm& form) { new (self) FormPlace(form); },
          nb::arg("form"))
      .def_prop_ro("may_go_on", &FormPlace::may_go_on)
      .def(
          "advance", [](FormPlace& self, const nb::bytes& piece) { self.advance(view_of(piece)); },
          nb::arg("piece"));
}

}  // namespace

void bind_session(nb::module_& module) {
  bind_forms(module);
  nb::class_<Sampler>(module, "Sampler", "Chooses tokens.")
      .def("__init__", &make_sampler, nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
           nb::arg("min_p"), nb::arg("repeat_penalty"), nb::arg("repeat_last"), nb::arg("seed"));
  module.def("procedural_option_names", &procedural_option_names);
  nb::class_<PySession>(module, "Session", "A text being read and continued; kvtide.Session wraps it.")
      .def(
          "__init__",
          [](PySession* self, const PyModel& model, std::int64_t context, bool exact, const nb::str& key_type,
             const nb::str& value_type, int threads, std::int64_t prefill_chunk, const nb::str& kernels,
             const std::optional<std::pair<std::int64_t, std::int64_t>>& rolling,
             std::optional<std::int64_t> attention_size, std::int64_t slack, std::int64_t checkpoint_every,
             std::int64_t checkpoint_budget, const std::optional<Dict>& procedural) {
            SessionOptions options;
            options.exact = exact;
            options.key_type = element_type("key_type", text_of(key_type));
            options.value_type = element_type("value_type", text_of(value_type));
            options.context = context;
            options.threads = threads;
            options.prefill_chunk = prefill_chunk;
            options.kernels = text_of(kernels);
            if (rolling) options.rolling = Rolling{rolling->first, rolling->second};
            options.attention_size = attention_size;
            options.slack = slack;
            options.checkpoints = {checkpoint_every, checkpoint_budget};
            if (procedural) options.procedural = procedural_options(*procedural);
            new (self) PySession(model, options);
          },
          nb::arg("model"), nb::arg("context"), nb::arg("exact"), nb::arg("key_type"), nb::arg("value_type"),
          nb::arg("threads"), nb::arg("prefill_chunk"), nb::arg("kernels"), nb::arg("rolling").none(),
          nb::arg("attention_size").none(), nb::arg("slack"), nb::arg("checkpoint_every"),
          nb::arg("checkpoint_budget"), nb::arg("procedural").none())
      .def("read", &PySession::read, nb::arg("ids").noconvert(), nb::arg("progress").none())
      .def("read_logits", &PySession::read_logits, nb::arg("ids").noconvert(), nb::arg("rows").noconvert(),
           nb::arg("progress").none())
      .def("score", &PySession::score, nb::arg("ids").noconvert(), nb::arg("log_probabilities").noconvert(),
           nb::arg("progress").none())
      .def("advance", &PySession::advance, nb::arg("token"), nb::arg("changes"))
      .def("logits", &PySession::logits, nb::sig("def logits(self) -> numpy.typing.NDArray[numpy.float32]"))
      .def(
          "pick",
          [](PySession& self, Sampler& sampler, const Sequence<TokenId>& recent) {
            return self.pick(sampler, vector_of<TokenId>(recent, "recent"));
          },
          nb::arg("sampler"), nb::arg("recent"))
      .def(
          "pick_from",
          [](PySession& self, Sampler& sampler, const ConstLogits& logits, const Sequence<TokenId>& recent) {
            return self.pick_from(sampler, logits, vector_of<TokenId>(recent, "recent"));
          },
          nb::arg("sampler"), nb::arg("logits").noconvert(), nb::arg("recent"),
          "The same, of logits that the caller has changed.")
      .def(
          "pick_held",
          [](PySession& self, Sampler& sampler, const FormPlace& place, const nb::object& logits,
             const Sequence<TokenId>& recent, const Sequence<TokenId>& ends) {
            return self.pick_held(sampler, place, logits, vector_of<TokenId>(recent, "recent"),
                                  vector_of<TokenId>(ends, "ends"));
          },
          nb::arg("sampler"), nb::arg("place"), nb::arg("logits").none(), nb::arg("recent"), nb::arg("ends"),
          "The same, among the tokens that the answer's form allows; without logits the session's own.")
      .def("why_no_logits", &PySession::why_no_logits)
      .def("log_probability", &PySession::log_probability, nb::arg("token"))
      .def(
          "generate",
          [](PySession& self, std::int64_t max_tokens, const Sequence<std::string>& stop,
             const Sequence<TokenId>& stop_tokens, const Dict& sampler, const Sequence<TokenId>& history,
             bool draft, const AnswerForm* form, const nb::object& on_text) {
            GenerateOptions options;
            if (form != nullptr) options.form = *form;
            options.max_tokens = max_tokens;
            options.stop = texts_of(stop, "stop");
            options.stop_tokens = vector_of<TokenId>(stop_tokens, "stop_tokens");
            options.history = vector_of<TokenId>(history, "history");
            options.draft = draft ? Draft::ngram : Draft::none;
            options.sampler = {.temperature = nb::cast<float>(sampler["temperature"]),
                               .top_k = nb::cast<int>(sampler["top_k"]),
                               .top_p = nb::cast<float>(sampler["top_p"]),
                               .min_p = nb::cast<float>(sampler["min_p"]),
                               .repeat_penalty = nb::cast<float>(sampler["repeat_penalty"]),
                               .repeat_last = nb::cast<int>(sampler["repeat_last"]),
                               .seed = nb::cast<std::uint64_t>(sampler["seed"])};
            const Generated out = self.generate(std::move(options), on_text);
            return std::make_tuple(out.tokens, out.text, std::string(stop_reason_name(out.reason)));
          },
          nb::arg("max_tokens"), nb::arg("stop"), nb::arg("stop_tokens"), nb::arg("sampler"),
          nb::arg("history"), nb::arg("draft"), nb::arg("form").none(), nb::arg("on_text").none())
      .def("fork", &PySession::fork, nb::rv_policy::take_ownership)
      .def(
          "save",
          [](PySession& self, const nb::bytes& path, const nb::bytes& cache) {
            self.save(text_of(path), text_of(cache));
          },
          nb::arg("path"), nb::arg("cache"))
      .def(
          "load",
          [](PySession& self, const nb::bytes& path, const nb::bytes& cache) {
            self.load(text_of(path), text_of(cache));
          },
          nb::arg("path"), nb::arg("cache"))
      .def("restore", &PySession::restore, nb::arg("state"))
      .def("tokens", &PySession::tokens, nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]"))
      .def("clear", &PySession::clear)
      .def("close", &PySession::close)
      .def("cancel", &PySession::cancel)
      .def_prop_ro("closed", &PySession::closed)
      .def_prop_ro("busy", &PySession::busy)
      .def_prop_ro("cancels", &PySession::cancels)
      .def_prop_ro("changes", &PySession::changes)
      .def_prop_ro("position", &PySession::position)
      .def_prop_ro("room", [](const PySession& self) { return self.numbers().room; })
      .def_prop_ro("rows", [](const PySession& self) { return self.numbers().rows; })
      .def_prop_ro("attention_size", [](const PySession& self) { return self.numbers().attention_size; })
      .def("procedural", &PySession::procedural,
           nb::sig("def procedural(self) -> dict[str, typing.Any] | None"))
      .def("pin", &PySession::pin, nb::arg("first"), nb::arg("last"))
      .def(
          "truncate",
          [](PySession& self, Pos length, const nb::object& progress) {
            return as_tuple(self.truncate(length, progress));
          },
          nb::arg("length"), nb::arg("progress").none())
      .def("checkpoint", &PySession::checkpoint)
      .def("checkpoints", &PySession::checkpoints)
      .def_prop_ro("checkpoint_every", [](const PySession& self) { return self.options().checkpoints.every; })
      .def_prop_ro("checkpoint_budget",
                   [](const PySession& self) { return self.options().checkpoints.budget; })
      .def_prop_ro("slack", [](const PySession& self) { return self.options().slack; })
      .def_prop_ro("rolling",
                   [](const PySession& self) {
                     std::optional<std::pair<std::int64_t, std::int64_t>> rolling;
                     if (const auto& r = self.options().rolling) rolling.emplace(r->sinks, r->window);
                     return rolling;
                   })
      .def_prop_ro("memory",
                   [](const PySession& self) {
                     const MemoryUse& use = self.memory();
                     return std::make_tuple(use.weights, use.kv, use.scratch);
                   })
      .def_prop_ro("context", [](const PySession& self) { return self.options().context; })
      .def_prop_ro("exact", [](const PySession& self) { return self.options().exact; })
      .def_prop_ro("threads", [](const PySession& self) { return self.options().threads; })
      .def_prop_ro("prefill_chunk", [](const PySession& self) { return self.options().prefill_chunk; })
      .def_prop_ro("key_type",
                   [](const PySession& self) { return element_type_name(self.options().key_type); })
      .def_prop_ro("value_type",
                   [](const PySession& self) { return element_type_name(self.options().value_type); });
}

}  // namespace kvtide::python
