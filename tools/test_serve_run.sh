#!/usr/bin/env bash
# The two commands of docs/cluster.md in a venv that has nothing else: installs a wheel with Ray and starts the example.
#
#   tools/test_serve_run.sh FOLDER MODEL WHEEL
#
# FOLDER is made anew. The packages of Ray come from wherever pip is set up to look: 5 minutes.
set -euo pipefail

if [ $# -ne 3 ]; then
  echo "usage: tools/test_serve_run.sh FOLDER MODEL WHEEL" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
model=$(realpath "$2")
wheel=$(realpath "$3")
rm -rf "$1"
mkdir -p "$1"
cd "$1"
"${PYTHON:-python3}" -m venv venv
ln -s "$model" model.gguf
cp "$root/examples/cluster/serve.yaml" .
port=$(venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s/port: 8000/port: $port/" serve.yaml

venv/bin/pip install --quiet --disable-pip-version-check "$wheel[ray]" >pip.log 2>&1 </dev/null || { tail -n 15 pip.log >&2; exit 1; }
# A cluster of its own, whatever else runs here.
RAY_ADDRESS=local RAY_USAGE_STATS_ENABLED=0 RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=60 venv/bin/serve run serve.yaml >serve.log 2>&1 </dev/null &
serving=$!
trap 'kill -TERM $serving 2>/dev/null; wait $serving 2>/dev/null || true' EXIT

venv/bin/python - "$port" <<'PYTHON' || { tail -n 30 serve.log >&2; exit 1; }
import json
import sys
import time
import urllib.request

base = f"http://127.0.0.1:{sys.argv[1]}"


def ask(messages):
    body = json.dumps({"messages": messages, "max_tokens": 8, "temperature": 0}).encode()
    headers = {"content-type": "application/json", "x-session-id": "talk"}
    request = urllib.request.Request(f"{base}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


begin = time.monotonic()
messages = [{"role": "user", "content": "Name a colour."}]
while True:
    try:
        first = ask(messages)
        break
    except OSError:
        if time.monotonic() - begin > 300:
            raise
        time.sleep(1)
messages += [first["choices"][0]["message"], {"role": "user", "content": "Another one."}]
second = ask(messages)
cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
assert cached > 4, second
print(f"serve run from a clean venv: two turns, {cached} tokens of the second were not read again")
PYTHON
