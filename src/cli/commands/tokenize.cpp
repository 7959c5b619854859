// kvtide tokenize: the tokens of a text. Needs the vocabulary only, so no weight is loaded.
#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/output/terminal.h"
#include "model/checkpoint.h"

namespace kvtide {

int tokenize_command(const Arguments& arguments) {
  const InputText input = given_text(arguments);
  const Tokenizer tokenizer = open_tokenizer(
      arguments.model, arguments.loading.map_file ? MappedFile::Mode::map : MappedFile::Mode::copy);
  const std::vector<TokenId> ids = encode_text(tokenizer, input, arguments);

  if (arguments.json) {
    Json pieces = Json::array();
    for (const TokenId id : ids) pieces.push(tokenizer.piece(id, true));
    Json result = Json::object();
    result.set("ids", Json::array(ids)).set("pieces", std::move(pieces));
    write_result(result.text(false) + "\n");
    return kExitFine;
  }
  std::string lines;
  for (const TokenId id : ids) {
    const std::string piece = tokenizer.piece(id, true);
    lines += cat(id, "\t", quoted(piece, piece.size()), "\n");
  }
  write_result(lines);
  return kExitFine;
}

}  // namespace kvtide
