// kvtide logits: the logits of the last or of every position of a text as a NumPy file.
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/opening.h"
#include "cli/output/npy_writer.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"

namespace kvtide {

int logits_command(const Arguments& arguments) {
  OutputFile::check(arguments.out);
  const InputText input = given_text(arguments);
  OpenModel open(arguments, arguments.session.context);
  Session& session = open.session;
  const std::vector<TokenId> tokens = encode_text(open.model.tokenizer(), input, arguments);
  const auto count = static_cast<std::int64_t>(tokens.size());
  ContextGuard(session).before_reading(count);

  std::vector<std::int64_t> shape{open.model.vocabulary()};
  if (arguments.all_positions) shape.insert(shape.begin(), count);
  NpyWriter writer(arguments.out, shape);
  ReadOptions read;
  // Row after row into the file: all of them would be gigabytes for a long text.
  read.logits_from = arguments.all_positions ? 0 : count - 1;
  read.on_logits = [&](Pos, std::span<const float> row) { writer.add(row); };
  {
    Progress progress("reading", session);
    read.progress = [&](std::int64_t done) {
      progress.update(done, count);
      return !interrupted() || done == count;
    };
    session.read(tokens, read);
  }
  writer.commit();
  std::string extents;
  for (const std::int64_t extent : shape) extents += cat(extents.empty() ? "" : ", ", extent);
  say(cat(arguments.out, ": float32 [", extents, "]"));
  return kExitFine;
}

}  // namespace kvtide
