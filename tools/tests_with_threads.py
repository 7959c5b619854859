#!/usr/bin/env python3
"""Which tests start a thread: a filter for GoogleTest, of all programs together.

    tools/tests_with_threads.py LIBRARY PROGRAM...

Runs every program with LIBRARY preloaded (tests/base/thread_log.cpp), which writes a line for every thread. What never has a
second thread cannot race: ThreadSanitizer, which makes a test ten times as slow, can leave it out. A child of fork() that
starts threads counts for its test.
"""

import os
import re
import subprocess
import sys


def tests_with_threads(library: str, program: str) -> list[str]:
    environment = dict(os.environ, LD_PRELOAD=library)
    run = subprocess.run([program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if run.returncode != 0:
        raise SystemExit(f"tests_with_threads.py: {program} ended with status {run.returncode}; mend it first")
    found: dict[str, None] = {}
    current = ""
    for line in run.stdout.decode(errors="replace").splitlines():
        if begun := re.match(r"\[ RUN      \] (\S+)", line):
            current = begun[1]
        elif line == "@thread":
            # Threads that a fixture of the whole suite starts, or a static object, count for what runs next to them.
            found[current or "*"] = None
    return list(found)


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit("usage: tools/tests_with_threads.py LIBRARY PROGRAM...")
    names = [name for program in sys.argv[2:] for name in tests_with_threads(sys.argv[1], program)]
    print(":".join(names))


if __name__ == "__main__":
    main()
