#include "cli/optional/table_policies.h"

#include <span>

#include "base/checksum.h"
#include "base/text.h"
#include "cli/output/procedural_fields.h"
#include "cli/output/terminal.h"
#include "eval/control.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

ElementType type_of_rows(const Model& model) {
  ProceduralOptions options;
  SessionOptions session;
  session.procedural = options;
  return old_rows_type(model, session);
}

}  // namespace

std::string text_hash(std::string_view text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hex(hash.finish());
}

// Everything of the options that figures depend on.
std::string options_key(const SessionOptions& o) {
  std::string key =
      cat("exact ", o.exact, " types ", static_cast<int>(o.key_type), " ", static_cast<int>(o.value_type),
          " context ", o.context, " threads ", o.threads, " chunk ", o.prefill_chunk, " kernels ", o.kernels);
  if (o.rolling) key += cat(" rolling ", o.rolling->sinks, " ", o.rolling->window);
  if (o.procedural)
    for (const FieldText& field : field_texts(*o.procedural)) key += cat(" ", field.name, " ", field.text);
  return key;
}

std::vector<TablePolicy> policies_of(const Arguments& arguments, const Model& model, const HeadTable& heads,
                                     std::int64_t context) {
  SessionOptions base = arguments.session;
  const SessionOptions full = full_cache(model, base, context);
  std::vector<TablePolicy> all = {
      {full.rolling ? cat("full f16, newest ", count_text(full.context)) : "full f16", full,
       full.rolling.has_value(), ""}};
  TablePolicy q8{"full q8_0", full, false, ""};
  q8.options.key_type = q8.options.value_type = ElementType::q8_0;
  if (full.rolling)
    q8.note = cat("does not fit: trained for ", count_text(model.context_length()), " tokens");
  if (type_of_rows(model) != ElementType::q8_0) q8.note = "heads are no multiple of 32 elements";
  all.push_back(q8);
  const auto add = [&](const std::string& name, ProceduralOptions options) {
    options.budget_for = context;
    SessionOptions session = base;
    session.context = 0;
    session.procedural = options;
    session.procedural->heads = heads;
    const bool bounded = options.budget > 0;
    try {
      const SessionOptions window = window_beside(model, session, context);
      all.push_back({name, session, bounded, ""});
      all.push_back({cat("window of ", count_text(window.rolling->window), " (bytes of ", name, ")"), window,
                     true, ""});
      session.procedural->heads = {};
      session.procedural->summary = Summary::cluster;
      session.procedural->score = RowScore::novelty;
      all.push_back({cat("plain recipe, ", name), session, bounded, ""});
    } catch (const Error& error) {
      // A budget that this model cannot live in is a line of the table, too.
      if (error.code() != ErrorCode::invalid_argument) throw;
      all.push_back({name, full, bounded, error.message()});
    }
  };
  for (const std::string& name : arguments.presets)
    for (const ProceduralPreset& preset : kProceduralPresets)
      if (name == preset.name) {
        ProceduralOptions options;
        options.window = preset.window;
        options.block = preset.block;
        options.rows = preset.rows;
        add(name, options);
      }
  for (const std::int64_t budget : arguments.budgets) {
    ProceduralOptions options;
    options.budget = budget;
    add(cat("budget ", bytes_text(budget)), options);
  }
  return all;
}

}  // namespace kvtide
