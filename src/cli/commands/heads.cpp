// kvtide heads: which heads of a model copy from the past, and what each of them needs.

#include "kvtide/heads.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/output/output_file.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {

int heads_command(const Arguments& arguments) {
  if (!arguments.out.empty()) OutputFile::check(arguments.out);
  const Model model = load_model(arguments.model, arguments);
  const Stopwatch watch;
  Progress progress("measuring heads");
  const HeadTable table =
      measure_heads(model, {.threads = arguments.session.threads, .progress = [&](double share) {
                              progress.update(share);
                              return !interrupted();
                            }});
  if (arguments.out.empty())
    write_result(heads_text(table));
  else
    OutputFile::write_whole(arguments.out, heads_text(table));
  std::int64_t full = 0;
  for (const HeadNeed& need : table.needs) full += need.copies() >= ProceduralOptions{}.full_from;
  say(cat(full, " of ", table.needs.size(), " heads copy from the past and keep every row; measured in ",
          time_text(watch.seconds())));
  return kExitFine;
}

}  // namespace kvtide
