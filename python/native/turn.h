// turn.h: one call at a time.
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
  bool busy() const { return busy_in_ != 0; }
  // In a forked child, when a thread of its parent was in the middle of a call: that call never ends, and
  // what it was changing can be neither used nor destroyed.
  bool abandoned() const { return busy() && busy_in_ != ::getpid(); }

 private:
  friend class Turn;
  const char* what_;   // "session", "state"
  pid_t busy_in_ = 0;  // the process of the call in progress; 0: there is none
};

class Turn {
 public:
  // Throws Misuse(busy).
  explicit Turn(Turns& turns) : turns_(turns) {
    const std::string what = turns.what_;
    if (turns.abandoned())
      throw Misuse("busy",
                   "this " + what +
                       " was in the middle of a call when the process forked, and cannot be used in the "
                       "child; make a new one" +
                       (what == "session" ? " from the model" : ""));
    if (turns.busy())
      throw Misuse("busy", "this " + what + " is in the middle of another call; a " + what +
                               " serves one caller at a time");
    turns.busy_in_ = ::getpid();
  }
  ~Turn() { turns_.busy_in_ = 0; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const Running running_;
  Turns& turns_;
};

}  // namespace kvtide::python
