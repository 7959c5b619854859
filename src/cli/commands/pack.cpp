// kvtide pack: packs the weights of a model ahead, into a file or into the cache folder.
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "kvtide/model.h"

namespace kvtide {
namespace {

// What is in the cache, and made if it was not. A model of any size: it was asked for.
PackedUse pack_into_cache(const Arguments& arguments) {
  ModelOptions options = arguments.loading;
  options.packed.smallest = 0;
  if (options.packed.folder.empty())
    throw Error(ErrorCode::not_found,
                "there is no cache folder: neither XDG_CACHE_HOME nor HOME is set; -o FILE names a file");
  PackedUse packed = Model(arguments.model, options).packed();
  if (!packed.file.empty()) return packed;
  throw Error(ErrorCode::io, packed.notes.empty() ? arguments.model + ": nothing was packed"
                                                  : cat(arguments.model, ": ", packed.notes.back()));
}

}  // namespace

int pack_command(const Arguments& arguments) {
  const Stopwatch watch;
  PackedUse packed;
  if (arguments.out.empty()) {
    packed = pack_into_cache(arguments);
    for (const std::string& note : packed.notes) say(cat("note: ", note));
  } else {
    packed.file = arguments.out;
    packed.bytes = pack_model(arguments.model, arguments.out, arguments.loading);
    packed.made = true;
  }
  write_result(cat(packed.file, "\n"));
  say(cat(bytes_text(packed.bytes), " of packed weights, ",
          packed.made ? cat("made in ", time_text(watch.seconds())) : "which were there"));
  return kExitFine;
}

}  // namespace kvtide
