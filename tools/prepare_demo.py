#!/usr/bin/env python3
"""Builds the program while the model and the novel of the demo are fetched.

    tools/prepare_demo.py MODELS NOVEL BUILD...      BUILD is the command that builds

Whatever fails ends the others at once. What fetching says is kept until the build is through, so that lines do not mix.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

TOOLS = Path(__file__).resolve().parent


def started(command: list[str], said: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own, so that it ends with all that it has started."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)


def end(jobs: list[subprocess.Popen[bytes]]) -> None:
    """As Ctrl-C would: each tidies up."""
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGINT)
    for job in jobs:
        job.wait()


def wait_for_all(jobs: list[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    """Those that failed; the others are then ended."""
    waiting = sys.stderr.isatty()
    while True:
        statuses = [job.poll() for job in jobs]
        failed = [job for job, status in zip(jobs, statuses) if status]
        if failed or None not in statuses:
            end(jobs)
            return failed
        if waiting and statuses[0] == 0:
            print("waiting for the model and the novel", file=sys.stderr, flush=True)
            waiting = False
        time.sleep(0.1)


def main(arguments: list[str]) -> int:
    if len(arguments) < 3:
        print("usage: tools/prepare_demo.py MODELS NOVEL BUILD...", file=sys.stderr)
        return 2
    models, novel, *build = arguments
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fetches = ["fetch_model.py", "gemma3", models], ["fetch_novel.py", "persuasion", novel]
    jobs: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as model_said, tempfile.TemporaryFile() as novel_said:
        said = (model_said, novel_said)
        try:
            jobs.append(started(build))
            for (script, *words), file in zip(fetches, said):
                jobs.append(started([sys.executable, str(TOOLS / script), *words], file))
            failed = wait_for_all(jobs)
        except KeyboardInterrupt:
            end(jobs)
            return 130
        for job, file in zip(jobs[1:], said):
            if failed and job not in failed:
                continue
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
            told = [line for line in lines if not line.endswith(".gguf")]  # its path, for scripts
            if told:
                print("\n".join(told), file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
