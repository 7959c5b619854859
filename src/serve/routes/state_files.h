// state_files.h: states as files. They lie in one folder that the server was started with, and are called by names: no
// path from a request reaches the file system. They are snapshots of kvtide run, too.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "serve/routes/service.h"

namespace kvtide::serve {

struct StateFile {
  std::size_t model = 0;
  std::string name, path;
  // Of a segment (state/segment.h): the paths of those before it, in order, and the name of the last one.
  std::optional<std::vector<std::string>> behind;
  std::string source;
};

// "filename" of a request, and "behind", a list of names, and "source". Throws Error: unsupported without a folder,
// invalid_argument for what is no name.
StateFile state_file(const Fields& fields, const Service& service, std::size_t model);

// Atomically. durable: also forced to the disk. Throws Error(io).
void save_state(const Service& service, const StateFile& file, State& state, bool durable = true);
// Throws Error: not_found, io, bad_format; invalid_argument for one of another model or computed in another way.
State load_state(const Service& service, const StateFile& file);

// Sends what `work` answers, or what is wrong.
void answer_or_refuse(Reply& reply, const std::function<Response()>& work);

}  // namespace kvtide::serve
