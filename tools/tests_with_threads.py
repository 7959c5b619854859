#!/usr/bin/env python3
"""Which suites of tests start a thread: a filter for GoogleTest, of all programs together.

    tools/tests_with_threads.py LIBRARY PROGRAM...

Runs every program with LIBRARY preloaded (tests/base/thread_log.cpp), which writes a line for every thread. What never has a
second thread cannot race: ThreadSanitizer, which makes a test ten times as slow, can leave it out. Whole suites are told, as a
test may use threads that its fixture or an earlier test started. A child of fork() that starts threads counts, too.
"""

import os
import re
import subprocess
import sys


def suites_with_threads(library: str, program: str) -> list[str]:
    environment = dict(os.environ, LD_PRELOAD=library)
    run = subprocess.run([program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if run.returncode != 0:
        raise SystemExit(f"tests_with_threads.py: {program} ended with status {run.returncode}; mend it first")
    found: dict[str, None] = {}
    current = "*"  # threads of static objects count for all
    for line in run.stdout.decode(errors="replace").splitlines():
        if begun := re.match(r"\[-+\] \d+ tests? from ([^\s,]+)", line):
            current = begun[1] + ".*"
        elif line == "@thread":
            found[current] = None
    return list(found)


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit("usage: tools/tests_with_threads.py LIBRARY PROGRAM...")
    names = [name for program in sys.argv[2:] for name in suites_with_threads(sys.argv[1], program)]
    print(":".join(names))


if __name__ == "__main__":
    main()
