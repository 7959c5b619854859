#include "serve/routes/state_files.h"

#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "state/snapshot.h"
#include "state/state_object.h"

namespace kvtide::serve {
StateFile state_file(const Fields& fields, const Service& service, std::size_t model) {
  const std::string& folder = service.options().states_folder;
  if (folder.empty())
    throw Error(ErrorCode::unsupported,
                "files of states need a folder: kvtide serve --slot-save-path FOLDER");
  std::string name = fields.required_text("filename");
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (name.empty() || name.size() > 128 || name[0] == '.' || name.find_first_not_of(kLetters) != name.npos)
    fields.refuse("filename", "must be a name of letters, digits, dots, dashes and underscores, not a path");
  std::string path = cat(folder, "/", name);
  return {model, std::move(name), std::move(path)};
}

void save_state(const Service& service, const StateFile& file, State& state, bool durable) {
  state.set_identity(service.models()[file.model].model->identity(service.options().states_folder));
  PosixFiles files;
  const State::Impl& inner = state.internals();
  save_snapshot(files, file.path, inner.kv, inner.extras, durable ? Flush::now : Flush::later);
}

State load_state(const Service& service, const StateFile& file) {
  State state = State::load(file.path);
  const Model& model = *service.models()[file.model].model;
  if (state.identity() != model.identity(service.options().states_folder))
    throw Error(ErrorCode::invalid_argument,
                cat("filename: ", quoted(file.name), " belongs to another model"));
  if (state.internals().extras.exact != service.options().work.exact)
    throw Error(ErrorCode::invalid_argument,
                cat("filename: ", quoted(file.name), " was not computed as this ",
                    "server computes: exact must be the same in both"));
  if (state.tokens().empty())
    throw Error(ErrorCode::invalid_argument, cat("filename: ", quoted(file.name), " does not say its text"));
  state.set_identity({});  // of this model, from here on
  return state;
}

void answer_or_refuse(Reply& reply, const std::function<Response()>& work) {
  try {
    reply.send(work());
  } catch (const Error& error) {
    reply.send(problem_response(problem_of(error), Dialect::openai));
  } catch (const std::bad_alloc&) {
    reply.send(problem_response({503, "out of memory", {}, {}, 1}, Dialect::openai));
  }
}

}  // namespace kvtide::serve
