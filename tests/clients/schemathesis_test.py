"""Requests that schemathesis makes of /openapi.json, sound ones and broken ones, against kvtide serve: none is answered
with a 5xx, and every status is one that the document names. Run by `make test-schemathesis`, with KVTIDE and KVTIDE_MODEL
set; EXAMPLES: requests for each operation."""

import os
import re
import signal
import subprocess
import sys
import tempfile

PROGRAM, MODEL = os.environ["KVTIDE"], os.environ["KVTIDE_MODEL"]
EXAMPLES = os.environ.get("EXAMPLES", "30")
# A short answer is as good as a long one here.
SERVER = ["--port", "0", "--quiet", "--max-tokens", "4", "-c", "1024", "--kv-budget", "256M"]


def main():
    with tempfile.TemporaryDirectory(prefix="kvtide-schemathesis-") as folder:
        server = subprocess.Popen([PROGRAM, "serve", "-m", f"small={MODEL}", *SERVER, "--slot-save-path", folder,
                                   "--cache-dir", folder + "/cache"], stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        # 501 is what the routes that are not there answer.
        run = [os.path.join(os.path.dirname(sys.executable), "st"), "run", found.group(0) + "/openapi.json",
               "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
               "--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", "1", "--request-timeout", "60",
               "--suppress-health-check", "all", "--continue-on-failure", "--no-color", "--generation-database", "none",
               "--exclude-path-regex", "^/(v1/embeddings|embedding|v1/rerank|infill|v1/audio/|v1/images/)"]  # fmt: skip
        outcome = subprocess.run(run, cwd=folder, check=False).returncode
        if server.poll() is not None:
            print(f"the server ended: {server.returncode}")
            outcome = 1
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)
        sys.exit(outcome or server.returncode)


if __name__ == "__main__":
    main()
