#include "serve/routes/state_files.h"

#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "state/segment.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace state_files {

constexpr std::size_t kMostSegments = 64;

std::string path_of(const Fields& fields, const Service& service, std::string_view key,
                    std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (name.empty() || name.size() > 128 || name[0] == '.' || name.find_first_not_of(kLetters) != name.npos)
    fields.refuse(key, "must be a name of letters, digits, dots, dashes and underscores, not a path");
  return cat(service.options().states_folder, "/", name);
}

State loaded(const StateFile& file) {
  if (!file.behind) return State::load(file.path);
  PosixFiles files;
  std::vector<std::string> chain = *file.behind;
  chain.push_back(file.path);
  return state_of(load_segments(files, chain), file.path);
}

}  // namespace state_files

StateFile state_file(const Fields& fields, const Service& service, std::size_t model) {
  if (service.options().states_folder.empty())
    throw Error(ErrorCode::unsupported,
                "files of states need a folder: kvtide serve --slot-save-path FOLDER");
  StateFile file{
      model, fields.required_text("filename"), {}, std::nullopt, fields.text("source").value_or("")};
  file.path = state_files::path_of(fields, service, "filename", file.name);
  if (fields.list("behind") == nullptr) return file;
  file.behind.emplace();
  for (const std::string& name : fields.texts("behind", state_files::kMostSegments))
    file.behind->push_back(state_files::path_of(fields, service, "behind", name));
  return file;
}

void save_state(const Service& service, const StateFile& file, State& state, bool durable) {
  state.set_identity(service.models()[file.model].model->identity(service.options().states_folder));
  PosixFiles files;
  const State::Impl& inner = state.internals();
  const Flush flush = durable ? Flush::now : Flush::later;
  if (!file.behind) return save_snapshot(files, file.path, inner.kv, inner.extras, flush);
  std::optional<SegmentBefore> before;
  if (!file.behind->empty()) before = {file.behind->back(), file.source};
  save_segment(files, file.path, inner.kv, inner.extras, before, flush);
}

State load_state(const Service& service, const StateFile& file) {
  State state = state_files::loaded(file);
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
