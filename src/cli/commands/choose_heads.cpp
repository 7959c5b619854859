#include "cli/commands/choose_heads.h"

#include <utility>

#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/commands/interrupt.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "kvtide/heads.h"

namespace kvtide {
namespace {

// What --kv-heads says itself; nullopt: it depends on the model.
std::optional<HeadTable> said_heads(const Arguments& a) {
  const std::string& wanted = a.memory.procedural.heads;
  if (wanted == "even") return HeadTable{};
  if (wanted != "auto") return read_heads(wanted);
  return std::nullopt;
}

}  // namespace

std::optional<HeadTable> known_heads(const Arguments& a, const Model& model) {
  if (std::optional<HeadTable> said = said_heads(a)) return said;
  return known_heads(model, cache_folder(a));
}

HeadTable choose_heads(const Arguments& a, const Model& model) {
  if (std::optional<HeadTable> said = said_heads(a)) return std::move(*said);
  const std::string cache = cache_folder(a);
  if (std::optional<HeadTable> known = known_heads(model, cache)) return std::move(*known);
  say("measuring which heads copy from the past (once per model; --kv-heads even does without)");
  HeadTable table;
  try {
    Progress progress("measuring heads");
    table = measure_heads(model, {.threads = a.session.threads, .progress = [&](double share) {
                                    progress.update(share);
                                    return !interrupted();
                                  }});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    say(cat("all heads are treated alike: ", error.what()));
    return {};
  }
  remember_heads(model, cache, table);
  return within_two_thirds(std::move(table), model);
}

}  // namespace kvtide
