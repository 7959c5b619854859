// turn.h: one call at a time, in the process that made the object.
//
// Thread rules: all of it under the GIL. A Turn is taken before the GIL is given up and ends after it was
// taken back.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "misuse.h"
#include "running.h"

namespace kvtide::python {

class Turns {
 public:
  explicit Turns(const char* what) : what_(what) {}
  bool busy() const { return busy_; }
  bool in_own_process() const { return ::getpid() == process_; }

 private:
  friend class Turn;
  const char* what_;  // "session", "state"
  const pid_t process_ = ::getpid();
  bool busy_ = false;
};

class Turn {
 public:
  // Throws Misuse(busy).
  explicit Turn(Turns& turns) : turns_(turns) {
    const std::string what = turns.what_;
    if (!turns.in_own_process())
      throw Misuse("busy", "this " + what +
                               " belongs to the process that made it; after a fork, make a new one" +
                               (what == "session" ? " from the model" : ""));
    if (turns.busy_)
      throw Misuse("busy", "this " + what + " is in the middle of another call; a " + what +
                               " serves one caller at a time");
    turns.busy_ = true;
  }
  ~Turn() { turns_.busy_ = false; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const Running running_;
  Turns& turns_;
};

}  // namespace kvtide::python
