// kvtide validate: whether a model computes what its reference computes, for every layer, token and way to
// cut a text; and if not, what is wrong.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/optional/optional_actions.h"
#include "cli/output/output_file.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "coreml/decode/folder_tokenizer.h"
#include "coreml/decode/packages_at.h"
#include "kvtide/validate.h"
#include "model/loaded_model.h"
#include "shards/shard_folder.h"
#include "shards/tokenizer_export.h"

namespace kvtide {
namespace {

constexpr std::int64_t kLongestCall = 100;  // of a longer text
constexpr std::int64_t kSpareSlots = 8;     // for tokens that are read and taken back

// tokenizer: null where the text is known as ids.
std::vector<TokenId> text_of(const Arguments& arguments, const Tokenizer* tokenizer, Reference& reference) {
  const auto wanted = static_cast<std::size_t>(arguments.validate.tokens);
  std::vector<TokenId> tokens;
  const bool ids = !arguments.validate.ids.empty();
  if (ids && (arguments.prompt || arguments.file))
    throw Error(ErrorCode::invalid_argument, "--ids, -p, -f: one of them says which text is read");
  if (auto known = reference.text()) {
    if (ids || arguments.prompt || arguments.file)
      throw Error(ErrorCode::invalid_argument,
                  "--ids, -p, -f: the folder of --reference says which text is read");
    tokens = std::move(*known);
  } else if (ids) {
    return arguments.validate.ids;
  } else if (arguments.prompt || arguments.file) {
    tokens = encode_text(*tokenizer, given_text(arguments), arguments);
  } else {
    tokens = validation_text(*tokenizer, arguments.validate.tokens);
  }
  if (tokens.size() > wanted) tokens.resize(wanted);
  return tokens;
}

Json table_json(const LayerTable& table) {
  Json json = Json::object();
  json.set("layers", table.layers).set("tokens", table.tokens);
  const auto numbers = [](const std::vector<float>& values) {
    return Json::array(std::vector<double>(values.begin(), values.end()));
  };
  json.set("change_cosine", numbers(table.change_cosine))
      .set("change_max_abs", numbers(table.change_error))
      .set("sum_cosine", numbers(table.sum_cosine))
      .set("sum_max_abs", numbers(table.sum_error));
  return json;
}

Json report_json(const ValidationReport& report) {
  Json findings = Json::array(), checks = Json::array(), schedules = Json::array(), apart = Json::array();
  for (const Finding& f : report.findings) {
    Json item = Json::object();
    item.set("cause", f.cause)
        .set("check", f.check)
        .set("layer", f.layer)
        .set("token", f.token)
        .set("calls", f.calls)
        .set("cosine", f.cosine)
        .set("what", f.what)
        .set("advice", f.advice);
    findings.push(std::move(item));
  }
  for (const CheckResult& check : report.checks) {
    Json item = Json::object();
    item.set("name", check.name).set("outcome", outcome_name(check.outcome)).set("detail", check.detail);
    checks.push(std::move(item));
  }
  for (const ScheduleResult& s : report.schedules) {
    Json item = Json::object();
    item.set("name", s.name)
        .set("calls", Json::array(s.calls))
        .set("isolated", s.isolated.change_cosine.empty() ? Json() : table_json(s.isolated))
        .set("chained", s.chained.change_cosine.empty() ? Json() : table_json(s.chained))
        .set("kl_mean", s.kl_mean)
        .set("kl_worst", s.kl_worst)
        .set("logits_cosine", s.logits_cosine)
        .set("logits_max_abs", s.logits_error)
        .set("top_same", s.top_same)
        .set("top_asked", s.top_asked)
        .set("same_bits", s.same_bits);
    schedules.push(std::move(item));
  }
  for (const TokenNote& note : report.apart) {
    Json item = Json::object();
    item.set("token", note.token).set("why", note.why).set("cosine", note.cosine);
    apart.push(std::move(item));
  }
  Json notes = Json::array();
  for (const Note& note : report.notes) {
    Json item = Json::object();
    item.set("name", note.name).set("what", note.what);
    notes.push(std::move(item));
  }
  Json json = Json::object();
  json.set("passed", report.passed)
      .set("model", report.model)
      .set("reference", report.reference)
      .set("arithmetic", report.arithmetic)
      .set("tokens", Json::array(report.tokens))
      .set("gate", report.gate)
      .set("apart_gate", report.apart_gate)
      .set("findings", std::move(findings))
      .set("checks", std::move(checks))
      .set("schedules", std::move(schedules))
      .set("apart", std::move(apart))
      .set("notes", std::move(notes));
  return json;
}

// shards: the folder under test; empty: a model.
int judge(const Arguments& arguments, TestedModel& tested, Reference& reference, const Tokenizer* tokenizer,
          ValidateOptions options, const std::string& shards = {}) {
  const ValidateRequest& request = arguments.validate;
  const std::vector<TokenId> tokens = text_of(arguments, tokenizer, reference);
  if (request.gate) options.gate = options.apart_gate = options.row_gate = *request.gate;
  options.chunks = request.chunks;
  options.free_tokens = request.free_tokens;
  options.length = request.length;
  Progress progress("validating");
  options.progress = [&](double share, std::string_view) {
    progress.update(share);
    return !interrupted();
  };
  ValidationReport report = validate(tested, reference, tokens, options);
  if (!shards.empty()) compare_shards(report, shards, request.reference);
  if (!request.html.empty()) OutputFile::write_whole(request.html, report_html(report));
  write_result(arguments.json ? report_json(report).text() + "\n" : report_text(report));
  return report.passed ? kExitFine : kExitInvalid;
}

int judge_shards(const Arguments& arguments) {
  const SessionOptions& session = arguments.session;
  if (session.exact || arguments.validate.everyday || arguments.memory.key_type_given ||
      arguments.memory.value_type_given)
    throw Error(ErrorCode::invalid_argument,
                "--exact, --no-exact, -ctk, -ctv: shards have one arithmetic, f32 with f16 rows");
  const ShardFolder folder(arguments.model, {.threads = 1});
  if (arguments.validate.length > folder.slots())
    throw Error(ErrorCode::invalid_argument, cat("--length: ", arguments.validate.length,
                                                 " tokens do not fit into ", folder.slots(), " slots"));
  if (const std::int64_t needed = arguments.validate.tokens + arguments.validate.free_tokens + kSpareSlots;
      needed > folder.slots())
    throw Error(ErrorCode::invalid_argument,
                cat("--tokens: ", arguments.validate.tokens, " tokens and ", arguments.validate.free_tokens,
                    " greedy ones need ", needed, " slots; these shards have ", folder.slots()));
  const auto tested =
      tested_shards(arguments.model, {.threads = session.threads, .kernels = session.kernels});
  const std::string& other = arguments.validate.reference;
  auto reference = other.empty() ? plain_shard_reference(arguments.model, session.threads)
                                 : open_reference(other, session.threads);
  if (!other.empty() && !holds_weights(other))
    reference = with_weights(std::move(reference), plain_shard_reference(arguments.model, session.threads));
  const Tokenizer tokenizer = open_shard_tokenizer(arguments.model, folder.internals().manifest);
  return judge(arguments, *tested, *reference, &tokenizer, usual_shard_gates(arguments.model, !other.empty()),
               arguments.model);
}

int judge_model(const Arguments& arguments) {
  const ValidateRequest& request = arguments.validate;
  const Model model = load_model(arguments.model, arguments);
  SessionOptions session = arguments.session;
  session.context = 0;
  session.exact = session.exact || (!request.everyday && has_float_weights(model));
  const std::int64_t longest = *std::max_element(request.chunks.begin(), request.chunks.end());
  const std::int64_t largest =
      std::max({longest, request.tokens / 2, std::min(request.length, kLongestCall)});
  const auto tested = tested_model(model, session, largest);
  auto reference = request.reference.empty() ? plain_reference(model, session.threads)
                                             : open_reference(request.reference, session.threads);
  if (!request.reference.empty() && !holds_weights(request.reference) && model.internals().config.experts)
    reference = with_weights(std::move(reference), plain_reference(model, session.threads));
  return judge(arguments, *tested, *reference, &model.tokenizer(), usual_gates(model, session));
}

int judge_packages(const Arguments& arguments) {
  const ValidateRequest& request = arguments.validate;
  const SessionOptions& session = arguments.session;
  if (session.exact || request.everyday || arguments.memory.key_type_given ||
      arguments.memory.value_type_given)
    throw Error(ErrorCode::invalid_argument,
                "--exact, --no-exact, -ctk, -ctv: a Core ML package says itself how it computes");
  if (request.reference.empty())
    throw Error(
        ErrorCode::invalid_argument,
        "--reference MODEL is missing: a Core ML package is compared with the model that it was made from; "
        "kvtide coreml lint --run looks at a package alone");
  CoremlOptions options;
  options.threads = session.threads;
  options.kernels = session.kernels;
  const auto tested = tested_packages(arguments.model, options);
  const auto reference = open_reference(request.reference, session.threads);
  ValidateOptions gates = usual_package_gates(arguments.model);
  if (!request.ids.empty() || !holds_weights(request.reference))
    return judge(arguments, *tested, *reference, nullptr, std::move(gates));
  const Tokenizer tokenizer = coreml::tokenizer_of(request.reference);
  return judge(arguments, *tested, *reference, &tokenizer, std::move(gates));
}

}  // namespace

int validate_command(const Arguments& arguments) {
  const ValidateRequest& request = arguments.validate;
  if (!request.html.empty()) OutputFile::check(request.html);
  if (arguments.session.exact && request.everyday)
    throw Error(ErrorCode::invalid_argument, "--exact and --no-exact: one of the two");
  if (coreml::holds_packages(arguments.model)) return judge_packages(arguments);
  return is_shard_folder(arguments.model) ? judge_shards(arguments) : judge_model(arguments);
}

}  // namespace kvtide
