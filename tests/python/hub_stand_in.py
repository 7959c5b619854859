"""A server that answers as the Hugging Face Hub does, for what downloading a model asks of it."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(repositories):
    """``repositories``: name to {file: bytes}. Gives the address and the list of paths that were asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.answer(False)

        def do_GET(self):
            self.answer(True)

        def answer(self, with_body):
            path = self.path.split("?")[0]
            asked.append(path)
            for name, files in repositories.items():
                if path.startswith(f"/api/models/{name}"):
                    rest = path[len(f"/api/models/{name}") :]
                    if rest.startswith("/tree/"):
                        entries = [{"type": "file", "path": f, "size": len(b), "oid": _sum(b)} for f, b in files.items()]
                        return self.send(200, json.dumps(entries).encode(), {"Content-Type": "application/json"}, with_body)
                    info = {"_id": "1", "id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "downloads": 0, "likes": 0,
                            "siblings": [{"rfilename": f} for f in files]}  # fmt: skip
                    return self.send(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, with_body)
                if path.startswith(f"/{name}/resolve/"):
                    file = path.split("/resolve/", 1)[1].split("/", 1)[1]
                    if file in files:
                        return self.send(200, files[file], {"ETag": f'"{_sum(files[file])}"', "X-Repo-Commit": COMMIT}, with_body)
                    return self.send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, with_body)
            return self.send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body)

        def send(self, status, body, headers, with_body):
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _sum(body):
    return hashlib.sha1(body).hexdigest()
