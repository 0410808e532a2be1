"""Programs without the job's secret, and other users: what they can do to a multi-node job."""

import os
import pathlib
import signal
import socket
import time
import unittest

import hostile
from harness import MGPU_RUN, SLOWER, JobTest, until
from hostile import ESCAPES, Munged, Squatter, Stranger, as_nobody, frame

TOKEN = "0123456789abcdef0123456789abcdef"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class TwoNodes(JobTest):
    def setUp(self):
        super().setUp()
        self.token = self.write("token", TOKEN, 0o600)
        self.port = free_port()
        self.env = {"CUDA_VISIBLE_DEVICES": ""}

    def agent(self, node_rank, script="echo ran on node $GROUP_RANK", token=True, options=()):
        """Starts an agent whose output goes to files."""
        job = self.start(
            "--nnodes", 2, "--node-rank", node_rank, "--master-addr", "127.0.0.1", "--master-port",
            self.port, *(["--rdzv-token-file", self.token] if token else []), "--nproc", 1,
            *options, "--no-python", "/bin/sh", "-c", script, env=self.env,
            stdout=open(self.dir / f"out{node_rank}", "wb"),
            stderr=open(self.dir / f"err{node_rank}", "wb"))
        return job

    def err(self, node_rank):
        return (self.dir / f"err{node_rank}").read_bytes()

    def assert_printable(self, text):
        self.assertEqual([c for c in text.decode("utf-8", "replace")
                          if ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160], [], text)
        self.assertNotIn(b"\nmgpu-run: forged", text)

    def assert_both_succeed(self, *agents):
        for agent in agents:
            self.assertEqual(agent.wait(60 * SLOWER), 0, self.err(0) + self.err(1))


class Strangers(TwoNodes):
    def test_a_refusal_without_the_token_never_decides_the_exit_status(self):
        for status in (0, 1, 2, 256, -1):
            with self.subTest(status=status):
                squatter = Squatter(self.port, lambda connection, _, status=status:
                                    connection.sendall(hostile.PREAMBLE + frame(
                                        {"is": "refusal", "status": status, "why": ESCAPES})))
                agent = self.agent(1)
                until(lambda: squatter.calls >= 3, 20, "three calls")
                self.assertIsNone(agent.poll())
                if status == 0:
                    until(lambda: b"cannot reach the leader" in self.err(1), 20, "a note")
                    self.assertIn(b"without proof that it leads the job", self.err(1))
                    self.assert_printable(self.err(1))
                squatter.close()
                self.assert_both_succeed(agent, self.agent(0))

    def test_a_strangers_text_cannot_write_to_the_leaders_terminal(self):
        leader = self.agent(0)
        strangers = []
        for message in ({"is": "refusal", "status": 1, "why": ESCAPES},
                        {"is": "hello", "job": ESCAPES, "nonce": "00" * 32, "purpose": "agent"},
                        {"is": ESCAPES}):
            stranger = until(self.connect, 10, "the leader")
            stranger.send(message)
            strangers.append(stranger)
        self.addCleanup(lambda: [stranger.close() for stranger in strangers])
        until(lambda: b"rejected a connection from 127.0.0.1" in self.err(0), 10, "a line")
        self.assert_both_succeed(leader, self.agent(1))
        self.assert_printable(self.err(0))

    def connect(self):
        try:
            return Stranger(self.port)
        except ConnectionError:
            return None


@unittest.skipIf(hostile.reason_to_skip_munge(), hostile.reason_to_skip_munge())
class OtherUsers(TwoNodes):
    """Under Slurm without a token munge decides who may join. The job is root's."""

    def setUp(self):
        super().setUp()
        self.munged = Munged(self.dir)
        self.addCleanup(self.munged.close)

    def agent(self, node_rank, *args, env=None, **kwargs):
        self.env = {"CUDA_VISIBLE_DEVICES": "", "MGPU_MUNGE_SOCKET": str(self.munged.socket),
                    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
                    "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": str(node_rank),
                    "SLURM_STEP_NODELIST": "node[0-1]", "SLURM_NTASKS_PER_NODE": "1",
                    **(env or {})}
        return super().agent(node_rank, *args, token=False, **kwargs)

    def challenge(self):
        """What the leader answers to an agent that asks for the secret."""
        stranger = Stranger(self.port)
        try:
            return stranger.hello("slurm-7.0", sealed=True)
        finally:
            stranger.close()

    def wait_for_leader(self):
        def reachable():
            try:
                Stranger(self.port).close()
                return True
            except ConnectionError:
                return False
        until(reachable, 20, "the leader")

    def test_another_user_cannot_read_the_leaders_secret(self):
        leader = self.agent(0)
        self.wait_for_leader()
        sealed = self.challenge()["sealed"]
        self.assertTrue(sealed.startswith("MUNGE:"))
        read = as_nobody(lambda: self.munged.decode(sealed))
        self.assertIn("nauthorized", read)
        self.assertNotIn("leader:", read)
        self.assertIn("leader:", self.munged.decode(self.challenge()["sealed"]))  # as root it can
        self.assert_both_succeed(leader, self.agent(1))

    def test_another_user_cannot_lead_the_agents_of_a_job(self):
        secret = b"made up"

        def lead(connection, hello):
            nonce = os.urandom(32)
            text = b"mgpu-run leader:" + bytes.fromhex(hello["nonce"]) + nonce + secret
            sealed = as_nobody_encode(text)
            connection.sendall(hostile.PREAMBLE + frame(
                {"is": "challenge", "nonce": nonce.hex(), "sealed": sealed, "proof": "00" * 32}))

        def as_nobody_encode(text):
            return as_nobody(lambda: self.munged.encode(text, 0))

        squatter = Squatter(self.port, lead)
        agent = self.agent(1)
        until(lambda: b"runs as uid 65534" in self.err(1), 30, "a note")
        self.assertIsNone(agent.poll())
        squatter.close()
        self.assert_both_succeed(agent, self.agent(0))

    def test_a_munged_that_shows_credentials_to_everybody_is_not_relied_on(self):
        build = pathlib.Path(os.environ.get("MGPU_BUILD") or MGPU_RUN).resolve()
        fake = next(folder / "fake_munge" for folder in (build, *build.parents)
                    if (folder / "fake_munge").is_dir())
        agent = self.agent(0, env={"LD_LIBRARY_PATH": str(fake)})
        self.assertEqual(agent.wait(20 * SLOWER), 2)
        self.assertIn(b"munged lets uid 0 decode what is meant for uid 1, so it keeps nobody out",
                      self.err(0))
        self.assertIn(b"--rdzv-token-file", self.err(0))

    def test_a_munged_that_stands_still_costs_no_node(self):
        end = self.dir / "end"
        script = f"echo up > {self.dir}/up$GROUP_RANK; while [ ! -e {end} ]; do sleep 0.1; done"
        agents = [self.agent(node, script, options=("--keep-alive", 1)) for node in (0, 1)]
        self.wait_for_files("up?", 2, 30)
        self.munged.process.send_signal(signal.SIGSTOP)
        strangers = []
        self.addCleanup(lambda: [stranger.close() for stranger in strangers])
        for _ in range(50):
            stranger = Stranger(self.port)
            stranger.send({"is": "hello", "job": "slurm-7.0", "nonce": "00" * 32,
                           "purpose": "agent", "sealed": True})
            strangers.append(stranger)
        time.sleep(3)  # three times the keep-alive
        end.touch()
        self.assert_both_succeed(*agents)
        self.assertNotIn(b"lost", self.err(0) + self.err(1))


if __name__ == "__main__":
    unittest.main()
