"""Access to etcd: users, TLS, and endpoints that are no etcd."""

import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

import certificates
from etcd_cluster import LEASE, Cluster, EtcdTest, free_ports, reason_to_skip, until


def setUpModule():
    if reason_to_skip():
        raise unittest.SkipTest(reason_to_skip())


class Users(EtcdTest):
    def setUp(self):
        self.shared = self.cluster(1, ["--auth-token-ttl", "2"])
        for words in (["user", "add", "root:rootpw"], ["user", "grant-role", "root", "root"],
                      ["user", "add", "job:secret"], ["role", "add", "jobs"],
                      ["role", "grant-permission", "jobs", "--prefix=true", "readwrite",
                       "/mgpu-run/"],
                      ["user", "grant-role", "job", "jobs"]):
            self.shared.ctl(*words)

    def enable(self):
        self.shared.ctl("auth", "enable")

    def test_a_user_may_lead_and_its_token_is_renewed(self):
        self.enable()
        a = self.candidate(self.shared.endpoints, "a:1", user="job", password="secret", lease=5)
        a.change(us=True)
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        b = self.candidate(self.shared.endpoints, "b:2", user="job", password="secret", lease=30)
        b.change(leader="a:1")
        # b does not use its token between two reads, so it expires.
        b.send(signal.SIGSTOP)
        started = time.monotonic()
        while time.monotonic() - started < 5:
            self.assertTrue(a.ask("leading", what="leading")["good"])
            time.sleep(0.1)
        b.send(signal.SIGCONT)
        got = b.ask("get", "/mgpu-run/job/state", what="got")
        self.assertEqual((got["problem"], got["value"]), ("", "one"))

    def test_a_server_that_forgot_its_tokens_is_authenticated_to_again(self):
        self.enable()
        a = self.candidate(self.shared.endpoints, "a:1", user="job", password="secret", lease=10)
        a.change(us=True)
        self.shared.members[0].kill()
        self.shared.members[0].start()
        self.assertTrue(a.ask("save", "one", what="saved")["good"])

    def test_authentication_that_is_enabled_later_is_used(self):
        client = self.client(self.shared.endpoints, user="job", password="secret")
        self.assertEqual(client.ask("get", "/mgpu-run/x", what="got")["problem"], "")
        self.enable()
        self.assertEqual(client.ask("get", "/mgpu-run/x", what="got")["problem"], "")

    def test_a_wrong_password_is_reported_at_once(self):
        self.enable()
        client = self.client(self.shared.endpoints, user="job", password="wrong")
        got = client.ask("get", "/mgpu-run/x", what="got")
        self.assertIn("rejected the user job: authentication failed", got["problem"])
        self.assertTrue(got["lasting"])
        self.assertNotIn("wrong", got["problem"])

    def test_a_missing_user_is_reported(self):
        self.enable()
        a = self.candidate(self.shared.endpoints, "a:1")
        told = a.change(problem=lambda text: text)
        self.assertIn("requires a user and a password", told["problem"])
        self.assertTrue(told["lasting"])

    def test_a_missing_permission_is_reported(self):
        self.enable()
        client = self.client(self.shared.endpoints, user="job", password="secret")
        got = client.ask("get", "/elsewhere", what="got")
        self.assertIn("permission denied", got["problem"])
        self.assertTrue(got["lasting"])


class Tls(EtcdTest):
    """Certificates of an authority that the test creates."""

    @classmethod
    def setUpClass(cls):
        if certificates.MISSING:
            raise unittest.SkipTest(certificates.MISSING)
        cls.certificates = certificates.Certificates()
        cls.addClassCleanup(cls.certificates.close)

    def path(self, name):
        return self.certificates.path(name)

    def server(self, name="good", **more):
        tls = {"ca": self.path("ca.pem"), "cert": self.path(f"{name}.pem"),
               "key": self.path(f"{name}.key"), **more}
        cluster = Cluster(tls=tls)
        self.addCleanup(cluster.close)
        # With a bad certificate etcdctl fails too, so wait for the port only.
        until(lambda: accepts(cluster.members[0].port), what="the port of etcd")
        return cluster

    def problem(self, cluster, **options):
        client = self.client(cluster.endpoints, **options)
        return client.ask("get", "/x", what="got")["problem"]

    def test_an_election_works_over_tls(self):
        cluster = self.server().wait()
        a = self.candidate(cluster.endpoints, "a:1", ca=self.path("ca.pem"))
        a.change(us=True)
        self.assertTrue(a.ask("save_large", 512 << 10, what="saved")["good"])
        by_name = cluster.endpoints.replace("127.0.0.1", "localhost")
        b = self.candidate(by_name, "b:2", ca=self.path("ca.pem"))
        b.change(leader="a:1", state=lambda state: len(state or "") == 512 << 10)
        a.ask("resign", what="resigned")
        b.change(us=True)

    def test_an_unknown_authority_is_named(self):
        cluster = self.server()
        other = self.path("other.pem")
        self.assertIn(f"its certificate is not from the authority in {other}",
                      self.problem(cluster, ca=other))
        self.assertIn("an authority that this system does not trust", self.problem(cluster))

    def test_an_expired_certificate_is_named(self):
        self.assertIn("has expired", self.problem(self.server("old"), ca=self.path("ca.pem")))

    def test_a_certificate_for_another_host_is_named(self):
        cluster = self.server("elsewhere")
        self.assertIn("its certificate is not for 127.0.0.1",
                      self.problem(cluster, ca=self.path("ca.pem")))

    def test_a_common_name_does_not_count(self):
        cluster = self.server("localhost")
        by_name = cluster.endpoints.replace("127.0.0.1", "localhost")
        problem = self.client(by_name, ca=self.path("ca.pem")).ask("get", "/x", what="got")["problem"]
        self.assertIn("its certificate is not for localhost", problem)

    def test_a_client_certificate_is_sent(self):
        cluster = self.server(client_ca=self.path("ca.pem")).wait()
        files = {"ca": self.path("ca.pem"), "cert": self.path("client.pem"),
                 "key": self.path("client.key")}
        self.assertEqual(self.problem(cluster, **files), "")
        self.assertIn("certificate", self.problem(cluster, ca=self.path("ca.pem")))

    def test_unusable_certificate_files_are_named(self):
        def error(**options):
            client = self.client("https://127.0.0.1:1", **options)
            return client.wait("error")["problem"]
        broken = self.path("broken.pem")
        pathlib.Path(broken).write_text("-----BEGIN CERTIFICATE-----\nno\n")
        self.assertIn("cacert=/nope: cannot read the CA certificate: No such file",
                      error(ca="/nope"))
        self.assertIn(f"cacert={broken}: cannot use the CA certificate: ", error(ca=broken))
        self.assertIn(f"key={self.path('other.key')}: cannot use the private key",
                      error(cert=self.path("client.pem"), key=self.path("other.key")))

    def test_mixing_up_http_and_https_is_reported(self):
        secure = self.server()
        plain = secure.endpoints.replace("https", "http")
        self.assertIn(f"{plain}: it closed the connection without an answer; did you mean https://?",
                      self.client(plain).ask("get", "/x", what="got")["problem"])
        open_one = self.cluster()
        secured = open_one.endpoints.replace("http", "https")
        self.assertIn("did you mean http://?",
                      self.client(secured, ca=self.path("ca.pem")).ask(
                          "get", "/x", what="got")["problem"])


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class OtherService(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = self.server.answer
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class OtherServices(EtcdTest):
    """Endpoints that are no etcd: each is reported with its problem, and the next one is tried."""

    def serve(self, status, answer):
        server = HTTPServer(("127.0.0.1", 0), OtherService)
        server.status, server.answer = status, answer
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def stop():
            server.shutdown()
            thread.join()
            server.server_close()
        self.addCleanup(stop)
        return f"http://127.0.0.1:{server.server_port}"

    def listening(self, greeting=b""):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        kept = []

        def accept():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                if greeting:
                    connection.sendall(greeting)
        thread = threading.Thread(target=accept)
        thread.start()

        def stop():
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()
        self.addCleanup(stop)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def nobody(self):
        return f"http://127.0.0.1:{free_ports(1)[0]}"

    def test_each_endpoint_is_named_with_its_problem(self):
        nobody, silent = self.nobody(), self.listening()
        web, other_json = self.serve(404, b"<html>"), self.serve(200, b'{"status":"ok"}')
        secure = self.serve(400, b"Client sent an HTTP request to an HTTPS server.\n")
        mail = self.listening(b"220 mail.example ESMTP\r\n")
        client = self.client(",".join([nobody, silent, web, other_json, mail, secure,
                                       "http://no-such-host.invalid"]))
        problem = client.ask("get", "/x", what="got")["problem"]
        self.assertTrue(problem.startswith("etcd does not answer: "), problem)
        for part in (f"{nobody}: Connection refused",
                     f"{silent}: connected, but no answer within 2 s",
                     f"{web}: it does not answer like etcd v3 (HTTP status 404)",
                     f"{other_json}: it does not answer like etcd v3",
                     f"{mail}: it does not speak HTTP",
                     f"{secure}: it requires TLS; did you mean https://?",
                     "http://no-such-host.invalid:2379: cannot resolve its name: "):
            self.assertIn(part, problem)

    def test_other_services_are_skipped_until_a_real_member_is_found(self):
        cluster = self.cluster()
        endpoints = ",".join([self.nobody(), self.listening(), self.serve(200, b"[]"),
                              cluster.endpoints])
        a = self.candidate(endpoints, "a:1", lease=10)
        a.change(us=True)
        self.assertTrue(a.ask("save", "one", what="saved")["good"])

    def test_a_member_of_another_cluster_is_rejected(self):
        mine, other = self.cluster(), self.cluster()
        a = self.candidate(mine.endpoints + "," + other.endpoints, "a:1")
        a.change(us=True)
        mine.members[0].kill()
        a.change(us=False, limit=LEASE + 3)
        a.say("campaign", "a:1")
        a.sees(us=False, problem=lambda text: "to another etcd cluster" in text)
        self.assertEqual(other.ctl("get", "--prefix", "/mgpu-run/").stdout, "")

    def test_a_silent_name_server_delays_nothing(self):
        unshare = ["unshare", "--mount", "--propagation", "private"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(server.close)
        try:
            server.bind(("127.97.0.53", 53))
        except OSError as error:
            self.skipTest(f"no name server can be put on port 53: {error}")
        server.settimeout(10)
        cluster = self.cluster()
        settings = pathlib.Path(cluster.folder, "resolv.conf")
        settings.write_text("nameserver 127.97.0.53\noptions timeout:30 attempts:5\n")
        through = [*unshare, "sh", "-c",
                   f'mount --bind {settings} /etc/resolv.conf && exec "$0" "$@"']
        a = self.candidate("http://slow.example:2379," + cluster.endpoints, "a:1", lease=5,
                           through=through)
        a.change(us=True)
        self.assertIn(b"slow\x07example", server.recv(512))
        self.assertTrue(a.ask("save", "one", what="saved")["good"])
        b = self.client("http://slow.example:2379", through=through)
        self.assertIn("its name did not resolve within 2 s",
                      b.ask("get", "/x", what="got")["problem"])
        started = time.monotonic()
        b.process.stdin.close()
        self.assertEqual(b.process.wait(10), 0)
        self.assertLess(time.monotonic() - started, 5)

    def test_an_election_waits_for_an_etcd_that_starts_late(self):
        cluster = Cluster()
        self.addCleanup(cluster.close)
        cluster.members[0].kill()
        a = self.candidate(cluster.endpoints, "a:1")
        a.change(problem=lambda text: "Connection refused" in text)
        cluster.members[0].start()
        leads = a.change(us=True)
        self.assertEqual(leads["problem"], "")

    def test_an_election_starts_again_when_etcd_has_lost_its_data(self):
        cluster = self.cluster()
        for number in range(9):
            cluster.ctl("put", "/revisions", str(number))
        a = self.candidate(cluster.endpoints, "a:1")
        a.change(us=True)
        cluster.members[0].kill()
        shutil.rmtree(f"{cluster.folder}/m0")
        cluster.members[0].start()
        a.change(us=False, limit=10)
        a.say("campaign", "a:1")
        self.assertLess(a.change(us=True)["term"], 9)

    def test_bad_endpoints_are_reported_at_the_start(self):
        for endpoints, why in (("", "it has no host"), ("ftp://a", "http:// or https://")):
            self.assertIn(why, self.client(endpoints).wait("error")["problem"])


if __name__ == "__main__":
    unittest.main()
