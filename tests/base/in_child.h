// in_child.h: a part of a test that runs in a child of fork(2).
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <functional>
#include <string>

#include "tests/base/time_limit.h"

namespace kvtide::testing {

// What `body` says in a child, "" for fine; alarm() ends one that waits for ever.
inline std::string in_child(const std::function<std::string()>& body) {
  int said[2];
  if (::pipe(said) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child < 0) return "no child";
  if (child == 0) {
    ::alarm(TimeLimit::kSeconds / 2);
    std::string outcome;
    try {
      outcome = body();
    } catch (const std::exception& error) {
      outcome = error.what();
    }
    const bool told = ::write(said[1], outcome.data(), outcome.size()) >= 0;
    ::_exit(told ? 0 : 1);
  }
  ::close(said[1]);
  std::string outcome(4096, '\0');
  const ssize_t size = ::read(said[0], outcome.data(), outcome.size());
  outcome.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  ::close(said[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? "the child waited for ever"
                                       : "the child ended with signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? outcome
                                  : "the child ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace kvtide::testing
