"""A server that speaks as much S3 as kvtide.cluster.s3 asks for, and whose objects survive kill -9.

    python s3_stand_in.py FOLDER PORT

Every manifest that it accepts goes into FOLDER/manifests.log, a line before and
one after: who wrote which turn of which session. What is killed between them may have written it or not.
"""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from kvtide.cluster.objects import FolderObjects

BUSY = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: the second waits for an acknowledgement otherwise, 40 ms
    objects: FolderObjects
    folder: Path
    etags: dict[str, str] = {}  # under BUSY; kept, as stores do
    log_file: Path

    def do_GET(self):
        name = self._name()
        query = parse_qs(urlsplit(self.path).query)
        if "/" not in name.rstrip("/") or "list-type" in query:
            return self._list(name.strip("/").partition("/")[0], query.get("prefix", [""])[0])
        try:
            with BUSY:  # an object and its own tag
                data, tag = (self.folder / name).read_bytes(), self._etag(name)
        except (FileNotFoundError, IsADirectoryError):
            return self._problem(404, "NoSuchKey")
        self._answer(200, data, tag)

    def do_HEAD(self):
        self.do_GET()

    def do_PUT(self):
        data = self._body()
        name = self._name()
        with BUSY:  # conditions are looked at and written in one go
            try:
                now = self._etag(name)
            except FileNotFoundError:
                now = None
            if self.headers.get("If-None-Match") == "*" and now is not None:
                return self._problem(412, "PreconditionFailed")
            wanted = self.headers.get("If-Match")
            if wanted is not None and now is None:
                return self._problem(404, "NoSuchKey")
            if wanted is not None and wanted.strip('"') != (now or "").strip('"'):
                return self._problem(412, "PreconditionFailed")
            if name.endswith("/manifest.json"):
                self._log(json.loads(data), False)
            self.objects.put(name, data)
            tag = self.etags[name] = etag(data)
            if name.endswith("/manifest.json"):
                self._log(json.loads(data), True)
        self._answer(200, b"", tag)

    def do_POST(self):
        """?delete: the objects that the body lists."""
        bucket = self._name().strip("/")
        keys = [one.text for one in ElementTree.fromstring(self._body()).iter() if one.tag.endswith("Key")]
        for key in keys:
            with BUSY:
                self.objects.delete(f"{bucket}/{key}")
                self.etags.pop(f"{bucket}/{key}", None)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def _etag(self, name):
        if name not in self.etags:
            self.etags[name] = etag((self.folder / name).read_bytes())
        return self.etags[name]

    def _list(self, bucket, prefix):
        names = [name for name in self.objects.names(bucket) if name[len(bucket) + 1 :].startswith(prefix)]
        rest = "<Size>0</Size><LastModified>2000-01-01T00:00:00Z</LastModified>"  # nobody here looks at them
        items = "".join(f"<Contents><Key>{escape(name[len(bucket) + 1 :])}</Key>{rest}</Contents>" for name in names)
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode())

    def _log(self, manifest, done):
        line = {key: manifest.get(key) for key in ("session", "turn", "fence", "writer", "write", "tokens")}
        with open(self.log_file, "a") as file:
            file.write(json.dumps(line | {"held": manifest["lease"] is not None, "done": done}) + "\n")

    def _body(self):
        if "chunked" not in self.headers.get("Content-Encoding", "") + self.headers.get("Transfer-Encoding", ""):
            return self._exactly(int(self.headers.get("Content-Length", 0)))
        # aws-chunked: sizes in hex, each with extensions, then trailers.
        raw_chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
        read = self._transfer_chunks if raw_chunked else lambda: self._exactly(int(self.headers["Content-Length"]))
        body, out = read(), b""
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return body
        while body:
            size, _, body = body.partition(b"\r\n")
            length = int(size.split(b";")[0] or b"0", 16)
            if length == 0:
                return out
            out, body = out + body[:length], body[length + 2 :]
        return out

    def _transfer_chunks(self):
        out = b""
        while True:
            length = int(self.rfile.readline().split(b";")[0], 16)
            out += self._exactly(length)
            self.rfile.readline()
            if length == 0:
                return out

    def _exactly(self, length):
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionError("a body that broke off is no object")
        return data

    def _name(self):
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _problem(self, status, code):
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status, body, tag=None):
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # connections break: that is what is tested


def etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def main():
    Handler.folder = Path(sys.argv[1])
    Handler.objects = FolderObjects(sys.argv[1], sync=False)
    Handler.log_file = Handler.folder / "manifests.log"
    Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()


if __name__ == "__main__":
    main()
