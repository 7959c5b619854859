#include "validation.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "arguments.h"
#include "kinds.h"
#include "kvtide/validate.h"
#include "model.h"
#include "python_tested.h"
#include "running.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

nb::bytes bytes_of(const void* data, std::size_t size) { return nb::bytes(data, size); }

nb::dict table_of(const LayerTable& table) {
  nb::dict out;
  out["layers"] = table.layers;
  out["tokens"] = table.tokens;
  const auto add = [&](const char* name, const std::vector<float>& values) {
    out[name] = bytes_of(values.data(), values.size() * sizeof(float));
  };
  add("change_cosine", table.change_cosine);
  add("change_max_abs", table.change_error);
  add("sum_cosine", table.sum_cosine);
  add("sum_max_abs", table.sum_error);
  return out;
}

Dict report_of(const ValidationReport& report) {
  Dict out;
  out["passed"] = report.passed;
  out["model"] = report.model;
  out["reference"] = report.reference;
  out["arithmetic"] = report.arithmetic;
  out["tokens"] = report.tokens;
  out["gate"] = report.gate;
  out["apart_gate"] = report.apart_gate;
  nb::list findings, checks, schedules, apart;
  for (const Finding& f : report.findings) {
    nb::dict item;
    item["cause"] = f.cause;
    item["check"] = f.check;
    item["layer"] = f.layer;
    item["token"] = f.token;
    item["calls"] = f.calls;
    item["cosine"] = f.cosine;
    item["what"] = f.what;
    item["advice"] = f.advice;
    findings.append(item);
  }
  for (const CheckResult& c : report.checks) {
    nb::dict item;
    item["name"] = c.name;
    item["outcome"] = outcome_name(c.outcome);
    item["detail"] = c.detail;
    checks.append(item);
  }
  for (const ScheduleResult& s : report.schedules) {
    nb::dict item;
    item["name"] = s.name;
    item["calls"] = s.calls;
    item["isolated"] = table_of(s.isolated);
    item["chained"] = table_of(s.chained);
    item["kl_mean"] = s.kl_mean;
    item["kl_worst"] = s.kl_worst;
    item["logits_cosine"] = s.logits_cosine;
    item["logits_max_abs"] = s.logits_error;
    item["top_same"] = s.top_same;
    item["top_asked"] = s.top_asked;
    item["same_bits"] = s.same_bits;
    schedules.append(item);
  }
  for (const TokenNote& n : report.apart) {
    nb::dict item;
    item["token"] = n.token;
    item["why"] = n.why;
    item["cosine"] = n.cosine;
    apart.append(item);
  }
  out["findings"] = findings;
  out["checks"] = checks;
  out["schedules"] = schedules;
  out["apart"] = apart;
  nb::list notes;
  for (const Note& note : report.notes) notes.append(nb::make_tuple(note.name, note.what));
  out["notes"] = notes;
  out["text"] = report_text(report);
  out["html"] = report_html(report);
  return out;
}

// Calls Python's progress(share, what); False stops.
std::function<bool(double, std::string_view)> progress_of(const nb::object& progress) {
  return [&progress](double share, std::string_view what) {
    if (stopping()) return false;
    const WithGil back_in_python;
    return in_python([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (progress.is_none()) return true;
      return !progress(share, nb::str(what.data(), what.size())).is(nb::bool_(false));
    });
  };
}

struct Asked {
  std::vector<std::int64_t> chunks;
  std::optional<double> gate;
  std::int64_t free_tokens;
  std::vector<TokenId> special;
  std::int64_t length = 0;
};

Asked asked_of(const Sequence<std::int64_t>& chunks, std::optional<double> gate, std::int64_t free_tokens,
               const Sequence<TokenId>& special, std::int64_t length) {
  return {vector_of<std::int64_t>(chunks, "chunks"), gate, free_tokens,
          vector_of<TokenId>(special, "special"), length};
}

void set(ValidateOptions& options, const Asked& asked) {
  options.chunks = asked.chunks;
  options.free_tokens = asked.free_tokens;
  options.length = asked.length;
  if (asked.gate) {
    options.gate = options.row_gate = *asked.gate;
    options.apart_gate = std::min(options.apart_gate, *asked.gate);
  }
  options.special.insert(options.special.end(), asked.special.begin(), asked.special.end());
}

// That of a path, or the model's own weights where there is none. Arrays are judged beside these weights, too.
std::unique_ptr<Reference> reference_at(const std::string& path, int threads,
                                        const std::function<std::unique_ptr<Reference>()>& own) {
  if (path.empty()) return own();
  auto reference = open_reference(path, threads);
  return holds_weights(path) ? std::move(reference) : with_weights(std::move(reference), own());
}

// What is judged, by what.
struct Judged {
  std::function<std::unique_ptr<TestedModel>()> tested;
  std::function<std::unique_ptr<Reference>()> reference;
  std::function<std::vector<TokenId>()> text;  // where the reference brings none
  std::function<ValidateOptions()> gates;
  std::function<void(ValidationReport&)> more = {};  // that the report is to say
};

// Nothing but progress needs Python.
Dict validate_as(const Judged& judged, std::vector<TokenId> tokens, std::int64_t count, const Asked& asked,
                 const nb::object& progress) {
  ValidationReport report;
  {
    const Running running;
    const WithoutGil others_run;
    const auto tested = judged.tested();
    const auto reference = judged.reference();
    if (tokens.empty()) tokens = reference->text() ? *reference->text() : judged.text();
    if (static_cast<std::int64_t>(tokens.size()) > count) tokens.resize(static_cast<std::size_t>(count));
    ValidateOptions options = judged.gates();
    set(options, asked);
    options.progress = progress_of(progress);
    report = validate(*tested, *reference, tokens, options);
    if (judged.more) judged.more(report);
  }
  return report_of(report);
}

Dict validate_model(const PyModel& tested, const nb::bytes& folder, const Sequence<TokenId>& text,
                    std::int64_t count, std::optional<bool> exact, const nb::str& key_type,
                    const nb::str& value_type, int threads, const nb::str& kernels,
                    const Sequence<std::int64_t>& chunks, std::optional<double> gate,
                    std::int64_t free_tokens, const Sequence<TokenId>& special, std::int64_t length,
                    const nb::object& progress) {
  const std::shared_ptr<const Model> model = tested.open();
  SessionOptions session;
  session.exact = exact.value_or(has_float_weights(*model));
  session.key_type = element_type("key_type", text_of(key_type));
  session.value_type = element_type("value_type", text_of(value_type));
  session.threads = threads;
  session.kernels = text_of(kernels);
  const std::string path = text_of(folder);
  const Asked asked = asked_of(chunks, gate, free_tokens, special, length);
  const std::int64_t longest =
      asked.chunks.empty() ? 1 : *std::max_element(asked.chunks.begin(), asked.chunks.end());
  const std::int64_t largest =
      std::max<std::int64_t>({longest, count / 2, std::min<std::int64_t>(asked.length, 100), 1});
  return validate_as(
      {[&] { return tested_model(*model, session, largest); },
       [&] { return reference_at(path, threads, [&] { return plain_reference(*model, threads); }); },
       [&] { return validation_text(*model, count); }, [&] { return usual_gates(*model, session); }},
      vector_of<TokenId>(text, "tokens"), count, asked, progress);
}

Dict validate_shards(const nb::bytes& shards, const nb::bytes& other, const Sequence<TokenId>& text,
                     std::int64_t count, int threads, const nb::str& kernels,
                     const Sequence<std::int64_t>& chunks, std::optional<double> gate,
                     std::int64_t free_tokens, const Sequence<TokenId>& special, std::int64_t length,
                     const nb::object& progress) {
  const std::string folder = text_of(shards), path = text_of(other), table = text_of(kernels);
  return validate_as(
      {[&] { return tested_shards(folder, {.threads = threads, .kernels = table}); },
       [&] { return reference_at(path, threads, [&] { return plain_shard_reference(folder, threads); }); },
       [&] { return validation_text_of_shards(folder, count); },
       [&] { return usual_shard_gates(folder, !path.empty()); },
       [&](ValidationReport& report) { compare_shards(report, folder, path); }},
      vector_of<TokenId>(text, "tokens"), count, asked_of(chunks, gate, free_tokens, special, length),
      progress);
}

Dict validate_packages(const nb::bytes& packages, const nb::bytes& other, const Sequence<TokenId>& text,
                       std::int64_t count, int threads, const nb::str& kernels,
                       const Sequence<std::int64_t>& chunks, std::optional<double> gate,
                       std::int64_t free_tokens, const Sequence<TokenId>& special, std::int64_t length,
                       const nb::object& progress) {
  const std::string folder = text_of(packages), path = text_of(other);
  CoremlOptions how;
  how.threads = threads;
  how.kernels = text_of(kernels);
  return validate_as(
      {[&] { return tested_packages(folder, how); }, [&] { return open_reference(path, threads); },
       [&] { return validation_text_of_model(path, count); }, [&] { return usual_package_gates(folder); }},
      vector_of<TokenId>(text, "tokens"), count, asked_of(chunks, gate, free_tokens, special, length),
      progress);
}

// A Python object, against a Python object or a folder.
Dict validate_object(nb::object adapter, nb::object reference_adapter, const nb::bytes& folder,
                     const Sequence<TokenId>& text, std::int64_t count, const Sequence<std::int64_t>& chunks,
                     std::optional<double> gate, std::int64_t free_tokens, const Sequence<TokenId>& special,
                     std::int64_t length, const nb::object& progress) {
  const Running running;
  PythonModel tested(std::move(adapter));
  std::unique_ptr<Reference> reference;
  const std::string path = text_of(folder);
  std::vector<TokenId> tokens = vector_of<TokenId>(text, "tokens");
  if (!path.empty())
    reference = open_reference(path);
  else if (nb::isinstance<PyModel>(reference_adapter))
    reference = plain_reference(*nb::cast<const PyModel&>(reference_adapter).open());
  else
    reference = std::make_unique<PythonReference>(std::move(reference_adapter));
  if (tokens.empty() && reference->text()) tokens = *reference->text();
  if (static_cast<std::int64_t>(tokens.size()) > count) tokens.resize(static_cast<std::size_t>(count));
  ValidateOptions options;
  set(options, asked_of(chunks, gate, free_tokens, special, length));
  options.precision = !gate;
  options.progress = progress_of(progress);
  return report_of(validate(tested, *reference, tokens, options));
}

}  // namespace

void bind_validation(nb::module_& module) {
  module.def("validate_model", &validate_model, nb::arg("model"), nb::arg("folder"), nb::arg("tokens"),
             nb::arg("count"), nb::arg("exact").none(), nb::arg("key_type"), nb::arg("value_type"),
             nb::arg("threads"), nb::arg("kernels"), nb::arg("chunks"), nb::arg("gate").none(),
             nb::arg("free_tokens"), nb::arg("special"), nb::arg("length"), nb::arg("progress").none());
  for (const auto& [name, call] :
       {std::pair("validate_shards", &validate_shards), std::pair("validate_packages", &validate_packages)})
    module.def(name, call, nb::arg("folder"), nb::arg("other"), nb::arg("tokens"), nb::arg("count"),
               nb::arg("threads"), nb::arg("kernels"), nb::arg("chunks"), nb::arg("gate").none(),
               nb::arg("free_tokens"), nb::arg("special"), nb::arg("length"), nb::arg("progress").none());
  module.def(
      "brings_text", [](const nb::bytes& path) { return !holds_weights(text_of(path)); }, nb::arg("path"));
  module.def("validate_object", &validate_object, nb::arg("adapter"), nb::arg("reference").none(),
             nb::arg("folder"), nb::arg("tokens"), nb::arg("count"), nb::arg("chunks"),
             nb::arg("gate").none(), nb::arg("free_tokens"), nb::arg("special"), nb::arg("length"),
             nb::arg("progress").none());
}

}  // namespace kvtide::python
