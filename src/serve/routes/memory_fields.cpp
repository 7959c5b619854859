#include "serve/routes/memory_fields.h"

#include <charconv>
#include <utility>

#include "base/byte_size.h"
#include "base/text.h"
#include "serve/routes/state_numbers.h"
#include "serve/work/prefix_cache.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace memory_fields {

constexpr std::int64_t kMost = std::int64_t{1} << 31, kLeastBudget = 1 << 20;
constexpr std::string_view kNames[] = {"kind", "window",         "sinks", "budget", "tokens",
                                       "pin",  "attention_size", "drift", "state"};

// A field that is misspelt would quietly be another memory.
void refuse_unknown(const Fields& kv, const JsonValue& object) {
  for (const auto& [name, value] : *object.object()) {
    bool known = false;
    for (const std::string_view one : kNames) known = known || one == name;
    if (!known)
      kv.refuse(name,
                "is not known; there are kind, window, sinks, budget, tokens, pin, attention_size, drift and "
                "state");
  }
}

void refuse_beside(const Fields& kv, std::string_view what, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (kv.has(name)) kv.refuse(name, cat("does not go with ", what));
}

std::int64_t budget_in(const Fields& kv) {
  const JsonValue* value = kv.find("budget");
  if (value == nullptr) kv.refuse("budget", "is missing; it must be a size such as \"64M\"");
  std::optional<std::int64_t> bytes;
  if (value->text() != nullptr) bytes = parse_byte_size(*value->text());
  if (value->integer() != nullptr) bytes = *value->integer();
  if (!bytes || *bytes < kLeastBudget)
    kv.refuse("budget", "must be at least \"1M\", such as \"64M\", or a number of bytes");
  return *bytes;
}

Rolling rolling_in(const Fields& kv) {
  refuse_beside(kv, "a rolling memory", {"budget", "tokens"});
  Rolling out;
  if (const auto window = kv.whole("window", 1, kMost)) out.window = *window;
  if (const auto sinks = kv.whole("sinks", 0, kMost)) out.sinks = *sinks;
  return out;
}

ProceduralOptions procedural_in(const Fields& kv) {
  ProceduralOptions out;
  out.budget = budget_in(kv);
  if (const auto tokens = kv.whole("tokens", 1, kMost)) out.budget_for = *tokens;
  if (const auto window = kv.whole("window", 1, kMost)) out.window = *window;
  if (const auto sinks = kv.whole("sinks", 0, kMost)) out.sinks = *sinks;
  return out;
}

// "system", or {"first": 0, "last": 48}.
void read_pin(const Fields& kv, MemoryChoice& out) {
  const JsonValue* pin = kv.find("pin");
  if (pin == nullptr) return;
  if (!out.procedural) kv.refuse("pin", "is of a procedural memory, and this is none");
  out.pin_system = pin->text() != nullptr && *pin->text() == "system";
  if (out.pin_system) return;
  if (pin->object() == nullptr)
    kv.refuse("pin", "must be \"system\", or positions such as {\"first\": 0, \"last\": 48}");
  const Fields range(*pin, kv.place("pin"));
  out.procedural->pins = {{range.required_whole("first", 0, kMost), range.required_whole("last", 1, kMost)}};
}

MemoryChoice choice_in(const Fields& kv, MemoryChoice otherwise) {
  MemoryChoice out = std::move(otherwise);
  if (const auto kind = kv.text("kind")) {
    out.rolling.reset();
    out.procedural.reset();
    if (*kind == "rolling")
      out.rolling = rolling_in(kv);
    else if (*kind == "procedural")
      out.procedural = procedural_in(kv);
    else if (*kind != "full")
      kv.refuse("kind", cat("must be full, rolling or procedural, not ", quoted(*kind)));
    else
      refuse_beside(kv, "a full memory", {"window", "sinks", "budget", "tokens"});
  } else {
    for (const std::string_view name : {"window", "sinks", "budget", "tokens"})
      if (kv.has(name)) kv.refuse(name, "needs a kind beside it: rolling or procedural");
  }
  read_pin(kv, out);
  if (const auto size = kv.whole("attention_size", 1, kMost)) out.attention_size = *size;
  if (const auto every = kv.whole("drift", 1, kMost)) {
    if (!out.procedural) kv.refuse("drift", "is measured of a procedural memory, and this is none");
    out.shadow = ShadowOptions{.every = *every};
  }
  return out;
}

// Where a template moves the system message, such as before the last words of the user, what the prompt itself begins
// with is pinned.
void pin_system(AnswerSpec& spec, const std::function<std::vector<TokenId>()>& before_user) {
  if (const std::int64_t count = common_prefix(before_user(), spec.prompt); count > 0)
    spec.memory.procedural->pins = {{0, count}};
}

}  // namespace memory_fields

void read_memory(const Fields& fields, Service& service, std::size_t model, AnswerSpec& spec,
                 const std::function<std::vector<TokenId>()>& before_user) {
  spec.memory = service.options().memory;
  if (const auto kv = fields.child("kv")) {
    memory_fields::refuse_unknown(*kv, *fields.find("kv"));
    if (const auto number = kv->whole("state", 0, std::int64_t{1} << 53)) {
      memory_fields::refuse_beside(
          *kv, "a state, which has a memory of its own",
          {"kind", "window", "sinks", "budget", "tokens", "pin", "attention_size", "drift"});
      spec.memory = {};
      spec.from = starting_point(service, model, *number);
      const std::vector<TokenId>& before = spec.from->state.tokens();
      const auto bos = service.models()[model].model->tokenizer().bos();
      // The text goes on: it does not begin again.
      if (!before.empty() && !spec.prompt.empty() && bos && spec.prompt[0] == *bos)
        spec.prompt.erase(spec.prompt.begin());
      if (spec.prompt.empty()) throw Error(ErrorCode::invalid_argument, "the prompt holds no tokens");
      spec.prompt.insert(spec.prompt.begin(), before.begin(), before.end());
      return;
    }
    spec.memory = memory_fields::choice_in(*kv, std::move(spec.memory));
    if (kv->has("pin") && spec.memory.pin_system && !before_user)
      kv->refuse("pin",
                 "may be \"system\" in a chat only; in a text, positions: {\"first\": 0, \"last\": 48}");
  }
  if (!spec.memory.procedural) return;
  spec.memory.procedural->heads = service.heads(model);
  if (spec.memory.pin_system && before_user) memory_fields::pin_system(spec, before_user);
}

MemoryChoice memory_from_text(std::string_view text) {
  MemoryChoice out;
  constexpr std::string_view kPin = ",pin=system";
  const std::size_t equals = text.find('=');
  const std::string_view kind = text.substr(0, equals);
  std::string_view value = equals == text.npos ? "" : text.substr(equals + 1);
  out.pin_system = kind == "procedural" && value.ends_with(kPin);
  if (out.pin_system) value.remove_suffix(kPin.size());
  const std::optional<std::int64_t> size = parse_byte_size(value);
  if (text == "full") return out;
  if (kind == "rolling" && size && *size >= 1 && *size <= memory_fields::kMost)
    out.rolling.emplace().window = *size;
  else if (kind == "procedural" && size && *size >= memory_fields::kLeastBudget)
    out.procedural.emplace().budget = *size;
  else
    throw Error(
        ErrorCode::invalid_argument,
        cat("the memory must be full, rolling=WINDOW, procedural=BYTES or procedural=BYTES,pin=system, not ",
            quoted(text)));
  return out;
}

std::string_view kind_of(const State& state) {
  if (state.budget()) return "procedural";
  return state.shape().rolling ? "rolling" : "full";
}

}  // namespace kvtide::serve
