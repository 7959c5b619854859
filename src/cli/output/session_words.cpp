#include "cli/output/session_words.h"

#include "base/text.h"
#include "cli/output/terminal.h"

namespace kvtide {

std::int64_t most_held(const Session& session) {
  const auto& rolling = session.options().rolling;
  if (session.options().procedural) return session.rows() + session.room();
  return rolling ? rolling->sinks + rolling->window : session.context();
}

std::string short_memory_words(const Session& session) {
  const auto& p = session.options().procedural;
  if (!p) return memory_words(session);
  const ProceduralBytes plan = *session.procedural_plan();
  if (plan.grows && p->budget_for == 0) return "KV memory grows with the text";
  return cat("KV memory of at most ", bytes_text(plan.total()),
             plan.grows ? cat(" for ", count_text(p->budget_for), " tokens") : "");
}

std::string memory_words(const Session& session) {
  std::string words;
  const auto add = [&](const std::string& more) { words += cat(words.empty() ? "" : "; ", more); };
  if (const auto& rolling = session.options().rolling)
    add(cat("rolling: ", count_text(rolling->sinks), " sinks and the newest ", count_text(rolling->window)));
  if (const auto& p = session.options().procedural) {
    const std::int64_t full = session.procedural_counts()->full_heads;
    const ProceduralBytes plan = *session.procedural_plan();
    add(cat("procedural: window ", count_text(p->window), ", blocks of ", p->block, " keep ", p->rows,
            " rows, ", full, full == 1 ? " head keeps " : " heads keep ",
            p->full_rows == 0 ? "all" : count_text(p->full_rows),
            plan.grows && p->budget_for == 0
                ? std::string("; grows with the text")
                : cat("; at most ", bytes_text(plan.total()),
                      plan.grows ? cat(" for ", count_text(p->budget_for), " tokens") : ""),
            p->budget > 0 ? cat(" of the budget of ", bytes_text(p->budget)) : ""));
  }
  if (const auto size = session.attention_size()) add(cat("attention size ", count_text(*size)));
  if (const auto& range = session.options().auto_attention)
    words += cat(", adapts itself from ", count_text(range->smallest), " to ", count_text(range->largest));
  return words;
}

}  // namespace kvtide
