"""Jobs over an etcd that has users and passwords, or requires TLS."""

import os
import subprocess
import time
import unittest

from etcd_job import SLACK, OverEtcd, user_prefix
from nodes_job import COULD_NOT_JOIN, USAGE_ERROR, alive, lines_with, slowly, until


class Users(OverEtcd):
    hosts = 2

    def setUp(self):
        super().setUp()
        for words in (["user", "add", "root:rootpw"], ["user", "grant-role", "root", "root"],
                      ["user", "add", "job:secret"], ["role", "add", "jobs"],
                      ["role", "grant-permission", "jobs", "--prefix=true", "readwrite",
                       user_prefix() + "/"],
                      ["user", "grant-role", "job", "jobs"], ["auth", "enable"]):
            self.etcd.ctl(*words)

    def test_a_user_with_a_password_is_accepted(self):
        self.job(nnodes=2, rdzv=self.rdzv(user="job", password="secret"))
        self.end_all()

    def test_a_password_that_is_sent_over_http_is_reported_once(self):
        self.job(nnodes=2, rdzv=self.rdzv(user="job", password="secret"))
        self.wait_for_steps()
        for agent in self.agents:
            (line,) = lines_with(agent.err, "unencrypted")
            self.assertIn("password of the etcd user job", line)
            self.assertIn(self.etcd.members[0].url, line)
            self.assertIn("use https://", line)
        self.end_all()

    def test_the_role_of_a_user_does_not_include_the_keys_of_others(self):
        self.check_refused("permission denied", user="job", password="secret",
                           prefix="/mgpu-run/somebody-else")

    def check_refused(self, *words, **conf):
        started = time.monotonic()
        agent = self.agent(0, 2, rdzv=self.rdzv(**conf))
        self.assertEqual(agent.wait(), USAGE_ERROR)
        self.assertLess(time.monotonic() - started, SLACK)
        for word in words:
            self.assertIn(word, agent.err)
        return agent

    def test_a_wrong_password_ends_the_agent_at_once_and_is_not_shown(self):
        agent = self.check_refused("rejected the user job", user="job", password="guessed")
        self.assertNotIn("guessed", agent.err)

    def test_a_missing_user_ends_the_agent_at_once(self):
        self.check_refused("requires a user and a password")

    def test_a_running_job_survives_the_loss_of_its_user_s_permission(self):
        world = self.job(nnodes=2, rdzv=self.rdzv(user="job", password="secret"))
        self.etcd.ctl("user", "revoke-role", "job", "jobs", user="root:rootpw")
        until(slowly(lambda: not any(map(alive, world.pids))), self.lease() + self.grace + SLACK,
              "the end of the workers")
        self.etcd.ctl("user", "grant-role", "job", "jobs", user="root:rootpw")
        self.world(2, after=world)
        self.end_all()


class Tls(OverEtcd):
    hosts = 2

    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.dir, check=True, capture_output=True)

    def certificate(self, name, names):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.dir / "names").write_text(f"subjectAltName={names}\n")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                     "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem")

    def start_etcd(self):
        try:
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                         "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key", "-out",
                         "ca.pem", "-days", "2", "-subj", "/CN=authority of a test")
        except FileNotFoundError:
            self.skipTest("openssl is not installed")
        self.certificate("server", f"IP:{self.net[self.hosts].v4}")
        self.certificate("client", "DNS:client.example")
        files = {name: str(self.dir / name) for name in os.listdir(self.dir)}
        return super().start_etcd(tls={"ca": files["ca.pem"], "cert": files["server.pem"],
                                       "key": files["server.key"], "client_ca": files["ca.pem"]})

    def test_certificates_of_both_sides_are_used(self):
        files = {name: self.dir / file for name, file in (
            ("cacert", "ca.pem"), ("cert", "client.pem"), ("key", "client.key"))}
        self.job(nnodes=2, rdzv=self.rdzv(protocol="https", **files))
        self.end_all()

    def test_a_server_with_an_unknown_authority_is_rejected(self):
        agent = self.agent(0, 2, rdzv=self.rdzv(self.etcd.endpoints, join_timeout=4))
        self.assertEqual(agent.wait(), COULD_NOT_JOIN)
        self.assertTrue(lines_with(agent.err, "certificate"), agent.err)


if __name__ == "__main__":
    unittest.main()
