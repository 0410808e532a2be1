"""Requests of the trainer over https, with certificates of the test's own authority."""

import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

import certificates

TRAIN = pathlib.Path(os.environ["MGPU_BUILD"]) / "bin" / "mgpu-train"
LIMIT = 60


def setUpModule():
    if certificates.MISSING:
        raise unittest.SkipTest(certificates.MISSING)
    globals()["CERTIFICATES"] = made = certificates.Certificates()
    unittest.addModuleCleanup(made.close)


class ScoringServer(http.server.ThreadingHTTPServer):
    """Gives each completion the number of its characters."""

    daemon_threads = True

    def __init__(self, certificate=None):
        super().__init__(("127.0.0.1", 0), Scores)
        self.requests = 0
        if certificate:
            CERTIFICATES.secure(self, certificate)
        self.scheme = "https" if certificate else "http"
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def url(self, scheme=None, host="127.0.0.1"):
        return f"{scheme or self.scheme}://{host}:{self.server_port}/score"

    def handle_error(self, request, client_address):
        """A client that rejects the certificate closes the connection."""

    def end(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Scores(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.requests += 1
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"scores": [len(text) for text in asked["completions"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def score(url, rows, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
        file.flush()
        return subprocess.run([TRAIN, "score", "--rewards", url, file.name], capture_output=True,
                              text=True, timeout=LIMIT, check=False,
                              env={**environment, **variables})


class Https(unittest.TestCase):
    def serve(self, certificate):
        server = ScoringServer(certificate)
        self.addCleanup(server.end)
        return server

    def scores(self, url, text="four", **variables):
        done = score(url, [{"prompt": "q", "completion": text}], **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return next(iter(json.loads(done.stdout).values()))

    def trusting(self, name="ca"):
        return {"SSL_CERT_FILE": CERTIFICATES.path(f"{name}.pem")}

    def refused(self, url, line, **variables):
        done = score(url, [{"prompt": "q", "completion": "four"}], **variables)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(line, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_server_of_a_trusted_authority_is_used_by_address_and_by_name(self):
        server = self.serve("good")
        self.assertEqual(self.scores(server.url(), **self.trusting()), 4)
        self.assertEqual(self.scores(server.url(host="localhost"), **self.trusting()), 4)

    def test_messages_of_any_size_arrive(self):
        self.assertEqual(self.scores(self.serve("good").url(), "x" * 3_000_000, **self.trusting()),
                         3_000_000)

    def test_the_authorities_of_the_system_are_used(self):
        server = self.serve("good")
        self.assertEqual(
            self.scores(server.url(), SSL_CERT_DIR=CERTIFICATES.folder_of_authorities()), 4)

    def test_certificates_that_are_not_trusted_are_refused(self):
        good = self.serve("good")
        for server, line, variables in (
                (good, "its certificate is from an authority that this system does not trust; set "
                       "SSL_CERT_FILE=FILE to the authority's certificate", {}),
                (good, "its certificate is not from the authority in "
                       f"{CERTIFICATES.path('other.pem')}", self.trusting("other")),
                (self.serve("elsewhere"), "its certificate is not for 127.0.0.1", self.trusting()),
                (self.serve("old"), "its certificate, or one in its chain, has expired",
                 self.trusting())):
            with self.subTest(line):
                self.refused(server.url(), line, **variables)
                self.assertEqual(server.requests, 0)

    def test_a_common_name_does_not_count(self):
        server = self.serve("localhost")
        self.refused(server.url(host="localhost"), "its certificate is not for localhost",
                     **self.trusting())
        self.assertEqual(server.requests, 0)

    def test_mixing_up_http_and_https_is_reported(self):
        self.refused(self.serve(None).url("https"), "did you mean http://?", **self.trusting())
        self.refused(self.serve("good").url("http"), "did you mean https://?")

    def test_a_file_of_authorities_that_cannot_be_used_is_named(self):
        self.refused("https://127.0.0.1:1/", "SSL_CERT_FILE=/nope: cannot read the CA certificate: "
                                             "No such file or directory", SSL_CERT_FILE="/nope")
        key = CERTIFICATES.path("ca.key")
        self.refused("https://127.0.0.1:1/",
                     f"SSL_CERT_FILE={key}: cannot use the CA certificate: ", SSL_CERT_FILE=key)


if __name__ == "__main__":
    unittest.main()
