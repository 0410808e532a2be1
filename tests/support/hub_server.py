"""A small server with the part of the Hub's protocol that `hf download` uses.

It serves models and datasets from memory, over HTTP on loopback, and misbehaves as a Repository's
members say. `requests` records all requests.
"""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

PATH = re.compile(r"^/(api/)?(models/|datasets/)?([\w.-]+(?:/[\w.-]+)?)/"
                  r"(revision|tree|resolve|paths-info|xet-read-token)/([^/]+)(?:/(.*))?$")


class Repository:
    """A model or dataset: files by name, at one commit, with the branch main."""

    def __init__(self, files, kind="model", commit=None, refs=()):
        self.files = {name: text.encode() if isinstance(text, str) else text
                      for name, text in files.items()}
        self.kind = kind
        digest = hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()
        self.commit = commit or digest
        self.refs = {"main", self.commit, *refs}
        self.gated = False  # only `accepted` may read it
        self.accepted = None
        self.token = None  # who may read it; others do not see that it exists
        self.statuses = []  # of the next answers, instead of these answers: 429, 500, ...
        self.truncated = {}  # file: how many answers have only half of it, as if that were all
        self.cut = {}  # file: how many answers break off in the middle
        self.gates = {}  # file: an Event that answers with its contents wait for

    def etag(self, name):
        return hashlib.sha256(self.files[name]).hexdigest()


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients are stopped in the middle of an answer."""


class Hub:
    """The server; use as a context manager. `url` is the value for HF_ENDPOINT."""

    def __init__(self):
        self.repositories = {}
        self.requests = []  # (method, path)
        self.tokens = None  # those that users have; None: any is accepted
        self.lock = threading.Lock()
        self.server = QuietServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        for repository in self.repositories.values():
            for gate in repository.gates.values():
                gate.set()
        self.server.shutdown()
        self.server.server_close()

    def add(self, name, files, kind="model", **options):
        repository = Repository(files, kind, **options)
        self.repositories[(kind, name)] = repository
        return repository

    def contents_sent(self, name):
        """How often the contents of a file were requested."""
        with self.lock:
            return sum(method == "GET" and "/resolve/" in path and path.endswith("/" + name)
                       for method, path in self.requests)

    def _handler(hub):  # noqa: N805
        class Request(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):  # noqa: N802
                hub.answer(self)

            do_HEAD = do_GET

        return Request

    def take(self, counts, name):
        """Whether this answer is one of those that misbehave."""
        with self.lock:
            counts[name] = counts.get(name, 0) - 1
            return counts[name] >= 0

    def refuse(self, request, status, code="", message="", headers=()):
        body = json.dumps({"error": message or code}).encode()
        request.send_response(status)
        if code:
            request.send_header("X-Error-Code", code)
        if message:
            request.send_header("X-Error-Message", message)
        for name, value in headers:
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def send_json(self, request, value):
        body = json.dumps(value).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def answer(self, request):
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        with self.lock:
            self.requests.append((request.command, path))
        found = PATH.match(path)
        if not found:
            return self.refuse(request, 404, "", "no such address")
        _, prefix, name, what, revision, rest = found.groups()
        kind = "dataset" if prefix == "datasets/" else "model"
        repository = self.repositories.get((kind, name))
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and self.tokens is not None and token not in self.tokens:
            return self.refuse(request, 401, "", "Invalid credentials in Authorization header")
        if repository is None or (repository.token and token != repository.token):
            # The Hub does not tell strangers which names exist.
            if token:
                return self.refuse(request, 404, "RepoNotFound", "Repository not found")
            return self.refuse(request, 401, "", "Invalid username or password.")
        with self.lock:
            status = repository.statuses.pop(0) if repository.statuses else 0
        if status:
            return self.refuse(request, status, "", "not now")
        if revision not in repository.refs:
            return self.refuse(request, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if what == "revision":
            files = [{"rfilename": file} for file in repository.files]
            return self.send_json(request, {"id": name, "sha": repository.commit, "private": False,
                                            "siblings": files, "tags": [], "downloads": 0})
        if what == "tree":
            return self.send_json(request, [
                {"type": "file", "path": file, "size": len(contents),
                 "oid": hashlib.sha1(contents).hexdigest()}
                for file, contents in repository.files.items()])
        if what != "resolve" or rest not in repository.files:
            return self.refuse(request, 404, "EntryNotFound", "Entry not found")
        if repository.gated and token != repository.accepted:
            status = 403 if token else 401
            return self.refuse(request, status, "GatedRepo",
                               f"Access to model {name} is restricted and you are not in the "
                               f"authorized list. Visit {self.url}/{name} to ask for access.")
        return self.send_file(request, repository, rest)

    def send_file(self, request, repository, name):
        contents = repository.files[name]
        first = 0
        if found := re.match(r"bytes=(\d+)-", request.headers.get("Range", "")):
            first = int(found[1])
        part = contents[first:]
        if request.command == "GET":
            if name in repository.gates:
                repository.gates[name].wait(60)
            if self.take(repository.truncated, name):
                part = part[:len(part) // 2]
        request.send_response(206 if first else 200)
        request.send_header("ETag", f'"{repository.etag(name)}"')
        request.send_header("X-Repo-Commit", repository.commit)
        request.send_header("Accept-Ranges", "bytes")
        request.send_header("Content-Length", str(len(part)))
        if first:
            request.send_header("Content-Range",
                                f"bytes {first}-{len(contents) - 1}/{len(contents)}")
        request.end_headers()
        if request.command == "HEAD":
            return
        if self.take(repository.cut, name):
            request.wfile.write(part[:len(part) // 2])
            request.wfile.flush()
            request.close_connection = True
            return
        request.wfile.write(part)
