"""A small server with the part of ModelScope's protocol that `modelscope download` uses: the list of
files of a model or dataset at a revision, and the contents of one file.

It serves from memory, over HTTP on loopback, and misbehaves as a Repository's members say. `requests`
records the paths with their queries.
"""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

PATH = re.compile(r"^/api/v1/(model|dataset)s/([\w.-]+/[\w.-]+)/repo(/files|/tree|)$")


class Repository:
    def __init__(self, files, revisions):
        self.files = {name: text.encode() if isinstance(text, str) else text
                      for name, text in files.items()}
        self.revisions = {"master", *revisions}
        self.token = None  # who may read it
        self.statuses = []  # of the next answers, instead of these answers: 429, 500, ...
        self.truncated = {}  # file: how many answers have only half of it, as if that were all

    def listed(self):
        return [{"Name": name.rpartition("/")[2], "Path": name, "Type": "blob", "Size": len(contents),
                 "Sha256": hashlib.sha256(contents).hexdigest(), "Revision": "master"}
                for name, contents in self.files.items()]


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients are stopped in the middle of an answer."""


class ModelScope:
    """The server; use as a context manager. `url` is the value for MODELSCOPE_ENDPOINT."""

    def __init__(self):
        self.repositories = {}
        self.requests = []
        self.lock = threading.Lock()
        self.server = QuietServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def add(self, name, files, kind="model", revisions=()):
        self.repositories[(kind, name)] = Repository(files, revisions)
        return self.repositories[(kind, name)]

    def contents_sent(self, name):
        """How often the contents of a file were requested."""
        with self.lock:
            return sum(f"FilePath={urllib.parse.quote_plus(name)}" in path.split("?")[-1].split("&")
                       for path in self.requests)

    def _handler(server):  # noqa: N805
        class Request(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):  # noqa: N802
                with server.lock:
                    server.requests.append(self.path)
                self.send(*server.answer(self.path, self.headers))

            do_HEAD = do_GET

            def send(self, status, body):
                self.send_response(status)
                if isinstance(body, bytes):
                    self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
                else:
                    body = json.dumps(body).encode()
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

        return Request

    def answer(self, address, headers):
        """Status, and a file's contents or a value for JSON."""
        path, _, query = address.partition("?")
        given = {key: values[0] for key, values in urllib.parse.parse_qs(query).items()}
        found = PATH.match(path)
        repository = self.repositories.get(found.groups()[:2]) if found else None
        token = f"{headers.get('Authorization', '')} {headers.get('Cookie', '')}"
        if repository is None or (repository.token and repository.token not in token):
            return 404, {"Code": 10010205001, "Message": "not found", "Success": False}
        with self.lock:
            if repository.statuses:
                return repository.statuses.pop(0), {"Message": "not now", "Success": False}
        if given.get("Revision", "master") not in repository.revisions:
            return 404, {"Code": 10010205101, "Message": "the revision is not found", "Success": False}
        if found[3]:
            return 200, {"Code": 200, "Success": True, "Data": {"Files": repository.listed()}}
        contents = repository.files.get(given.get("FilePath", ""))
        if contents is None:
            return 404, {"Code": 10990101007, "Message": "the file is not found", "Success": False}
        return 200, self.part(repository, given["FilePath"], contents)

    def part(self, repository, name, contents):
        with self.lock:
            left = repository.truncated.get(name, 0)
            repository.truncated[name] = left - 1
        return contents[:len(contents) // 2] if left > 0 else contents
