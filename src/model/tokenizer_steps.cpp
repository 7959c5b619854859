#include "model/tokenizer_steps.h"

#include "base/text.h"

namespace kvtide {
namespace {

constexpr std::size_t kMostSteps = 32;

[[noreturn]] void refuse_type(const JsonFields& json, std::string_view part, const std::string& type,
                              std::string_view known) {
  json.refuse(ErrorCode::unsupported,
              cat("the ", part, " ", quoted(type), " is not supported; kvtide knows ", known));
}

std::string type_of(const JsonFields& json, std::string_view part) {
  const auto type = json.text("type");
  if (!type) json.refuse(ErrorCode::bad_format, cat("a ", part, " lacks its 'type'"));
  return *type;
}

// Calls each(step) for one component or the members of a Sequence, whose list is under `key`.
template <class Each>
void for_each_step(const JsonFields& json, std::string_view part, const char* key, const Each& each,
                   int depth = 0) {
  if (type_of(json, part) != "Sequence") return each(json);
  const JsonValue* list = json.find(key);
  if (list == nullptr || list->list() == nullptr || depth > 3)
    json.refuse(ErrorCode::bad_format,
                cat("a Sequence of ", part, "s must hold a list '", key, "', three deep at most"));
  for (const JsonValue& item : *list->list())
    for_each_step(JsonFields(item, json.file(), cat(part, ".")), part, key, each, depth + 1);
}

std::string required(const JsonFields& json, std::string_view part, const char* key) {
  const auto text = json.text(key);
  if (!text) json.refuse(ErrorCode::bad_format, cat("a ", part, " lacks '", key, "'"));
  return *text;
}

// {"String": "..."} or {"Regex": "..."}
struct PatternText {
  std::string text;
  bool is_regex;
};
PatternText pattern_of(const JsonFields& json, std::string_view part) {
  const auto pattern = json.child("pattern");
  if (!pattern) json.refuse(ErrorCode::bad_format, cat("a ", part, " lacks 'pattern'"));
  if (const auto text = pattern->text("String")) return {*text, false};
  return {required(*pattern, part, "Regex"), true};
}

SplitStep::Behavior behavior_of(const JsonFields& json) {
  const std::string name = required(json, "pre_tokenizer", "behavior");
  if (name == "Removed") return SplitStep::Behavior::removed;
  if (name == "Isolated") return SplitStep::Behavior::isolated;
  if (name == "MergedWithPrevious") return SplitStep::Behavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitStep::Behavior::merged_with_next;
  if (name == "Contiguous") return SplitStep::Behavior::contiguous;
  refuse_type(json, "behavior of a Split", name,
              "Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
}

// Expressions that are common enough to have a scanner, which is linear whatever the text is.
std::optional<PreTokenizer> known_rule(std::string_view expression) {
  constexpr std::string_view kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kQwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (expression == kGpt2) return PreTokenizer::gpt2;
  if (expression == kLlama3) return PreTokenizer::llama3;
  if (expression == kQwen2) return PreTokenizer::qwen2;
  return std::nullopt;
}

void read_normalizer(const JsonFields& json, PipelineSpec& pipeline) {
  using Kind = NormalizerStep::Kind;
  const std::string type = type_of(json, "normalizer");
  NormalizerStep step;
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.kind = type == "NFC"    ? Kind::nfc
                : type == "NFD"  ? Kind::nfd
                : type == "NFKC" ? Kind::nfkc
                                 : Kind::nfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::lowercase;
  } else if (type == "Prepend") {
    step.kind = Kind::prepend;
    step.to = required(json, "normalizer", "prepend");
  } else if (type == "Replace") {
    const PatternText pattern = pattern_of(json, "normalizer");
    if (pattern.is_regex)
      json.refuse(ErrorCode::unsupported, "a Replace normalizer with a regular expression is not supported");
    step.kind = Kind::replace;
    step.from = pattern.text;
    step.to = required(json, "normalizer", "content");
  } else {
    refuse_type(json, "normalizer", type, "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace and Sequence");
  }
  pipeline.normalizers.push_back(std::move(step));
}

void read_metaspace(const JsonFields& json, PipelineSpec& pipeline) {
  SplitStep step;
  step.kind = SplitStep::Kind::metaspace;
  step.pattern = json.text("replacement").value_or("\xe2\x96\x81");
  const std::string scheme =
      json.text("prepend_scheme").value_or(json.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    refuse_type(json, "prepend_scheme of Metaspace", scheme, "always, first and never");
  step.front = scheme == "always"  ? SplitStep::Front::always
               : scheme == "first" ? SplitStep::Front::first
                                   : SplitStep::Front::never;
  step.splits = json.flag("split", true);
  pipeline.splits.push_back(std::move(step));
}

void read_pre_tokenizer(const JsonFields& json, PipelineSpec& pipeline) {
  const std::string type = type_of(json, "pre_tokenizer");
  if (pipeline.byte_level)
    json.refuse(ErrorCode::unsupported,
                cat("the pre_tokenizer ", quoted(type), " behind ByteLevel is not supported"));
  SplitStep step;
  if (type == "ByteLevel") {
    pipeline.byte_level = true;
    if (json.flag("add_prefix_space", true)) {
      step.kind = SplitStep::Kind::space_front;
      pipeline.splits.push_back(step);
    }
    step.kind = SplitStep::Kind::rule;
    step.rule = PreTokenizer::gpt2;
    if (json.flag("use_regex", true)) pipeline.splits.push_back(step);
  } else if (type == "Metaspace") {
    read_metaspace(json, pipeline);
  } else if (type == "Digits") {
    step.kind = SplitStep::Kind::digits;
    step.individual = json.flag("individual_digits", false);
    pipeline.splits.push_back(step);
  } else if (type == "Split") {
    const PatternText pattern = pattern_of(json, "pre_tokenizer");
    step.behavior = behavior_of(json);
    step.invert = json.flag("invert", false);
    step.pattern = pattern.text;
    step.kind = pattern.is_regex ? SplitStep::Kind::pattern : SplitStep::Kind::text;
    // The scanners' matches cover every text, so that isolating them and keeping only them is the same.
    const bool keeps_all = (step.behavior == SplitStep::Behavior::isolated) ||
                           (step.behavior == SplitStep::Behavior::removed && step.invert);
    if (const auto rule = pattern.is_regex && keeps_all ? known_rule(pattern.text) : std::nullopt) {
      step.kind = SplitStep::Kind::rule;
      step.rule = *rule;
    }
    pipeline.splits.push_back(std::move(step));
  } else {
    refuse_type(json, "pre_tokenizer", type, "ByteLevel, Metaspace, Digits, Split and Sequence");
  }
}

}  // namespace

void read_steps(const JsonFields& json, PipelineSpec& pipeline) {
  if (const auto normalizer = json.child("normalizer"))
    for_each_step(*normalizer, "normalizer", "normalizers",
                  [&](const JsonFields& step) { read_normalizer(step, pipeline); });
  if (const auto pre = json.child("pre_tokenizer"))
    for_each_step(*pre, "pre_tokenizer", "pretokenizers",
                  [&](const JsonFields& step) { read_pre_tokenizer(step, pipeline); });
  if (pipeline.normalizers.size() + pipeline.splits.size() > kMostSteps)
    json.refuse(ErrorCode::unsupported,
                cat("more than ", kMostSteps, " steps before the model are not supported"));
}

bool decoder_strips(const JsonFields& json) {
  bool strips = false;
  const auto decoder = json.child("decoder");
  if (!decoder) return false;
  for_each_step(*decoder, "decoder", "decoders", [&](const JsonFields& step) {
    const std::string type = type_of(step, "decoder");
    if (type == "Strip" || type == "Metaspace")
      strips = type == "Strip" ? step.count("start", 0, 1000, 0) > 0
                               : step.text("prepend_scheme").value_or("always") != "never";
    else if (type != "ByteLevel" && type != "Replace" && type != "ByteFallback" && type != "Fuse")
      refuse_type(step, "decoder", type,
                  "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and Sequence");
  });
  return strips;
}

}  // namespace kvtide
