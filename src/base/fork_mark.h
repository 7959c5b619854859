// fork_mark.h: tells whether this process is a child, by fork(), of the process that made the mark.
//
// Threads do not go along with fork(), so what waits for threads has to know. Asking costs one read of memory
// where the system can clear a page in children (Linux 4.14 and later), and one system call elsewhere.
#pragma once

#include <sys/types.h>

#include "base/buffer.h"

namespace kvtide {

class ForkMark {
 public:
  ForkMark();  // throws Error(out_of_memory)

  bool in_child() const;

 private:
  Buffer page_;  // begins with a one that the system clears in children; empty: ask for the process
  pid_t process_ = 0;
};

}  // namespace kvtide
