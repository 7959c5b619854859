#include "cli/commands/loading.h"

#include "base/text.h"
#include "cli/output/terminal.h"

namespace kvtide {

Model load_model(const std::string& path, const Arguments& arguments, std::int64_t context) {
  ModelOptions options = arguments.loading;
  options.context = context > 0 ? context : arguments.session.context;
  Model model(path, options);
  const PackedUse& packed = model.packed();
  for (const std::string& note : packed.notes) say(cat("note: ", note));
  if (packed.made)
    say(cat("note: the packed weights are kept in ", packed.file, " (", bytes_text(packed.bytes),
            "): the next start maps them"));
  for (const std::string& note : model.notes()) say(cat("note: ", note));
  return model;
}

}  // namespace kvtide
