"""``python -m kvtide.cluster [NAME=]MODEL --kv-budget 2G --store URL --port 8080``: one replica, without Ray.

Whatever starts and stops such processes moves the sessions with them: llama-swap, systemd, Kubernetes.
"""

from __future__ import annotations

import argparse
import sys

from kvtide.cluster import app
from kvtide.errors import Error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kvtide.cluster", description="One replica of kvtide with sessions in a store.")
    parser.add_argument("model", metavar="[NAME=]MODEL", help="NAME: by which requests ask for it, instead of its own")
    parser.add_argument("--kv-budget", required=True)
    parser.add_argument("--store", required=True, help="a folder that all replicas share, or s3://BUCKET/PATH")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--context", type=int)
    parser.add_argument("--chat-template")
    parser.add_argument("--work-folder", help="on a disk of its own; default: a temporary one")
    parser.add_argument("--api-key")
    parser.add_argument("--lease-seconds", type=float, default=6.0)
    options = parser.parse_args()
    try:
        import uvicorn  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        print("python -m kvtide.cluster needs uvicorn: pip install 'kvtide[cluster]'", file=sys.stderr)
        return 1
    if options.host not in ("127.0.0.1", "localhost", "::1") and options.api_key is None:
        print("--host: another one than this machine's needs --api-key", file=sys.stderr)
        return 1
    before, equals, after = options.model.partition("=")
    if "/" in before:  # a path with such a sign in it
        before, equals, after = options.model, "", ""
    try:
        replica = app(
            after if equals else before,
            model_name=before if equals else None,
            kv_budget=options.kv_budget,
            store=options.store,
            threads=options.threads,
            context=options.context,
            chat_template=options.chat_template,
            work_folder=options.work_folder,
            lease_seconds=options.lease_seconds,
            api_key=options.api_key,
            hosts=() if options.api_key is None else None,
        )
    except Error as error:
        print(f"kvtide.cluster: {error}", file=sys.stderr)
        return 1
    uvicorn.run(replica, host=options.host, port=options.port, log_level="warning", timeout_graceful_shutdown=8)
    return 0


if __name__ == "__main__":
    sys.exit(main())
