"""A file system that does not respond for a while holds up neither mgpu-run nor the job's nodes."""

import json
import os
import pathlib
import socket
import time
import unittest

from harness import SLOWER, JobTest, alive, children, until

BUILD = pathlib.Path(os.environ.get("MGPU_BUILD") or
                     pathlib.Path(__file__).resolve().parents[2] / "build")
LIBRARY = BUILD / "lib" / "libstalled_files.so"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class StalledFiles(JobTest):
    """Operations on files below `slow` do not return while the file `stall` exists."""

    def setUp(self):
        super().setUp()
        if SLOWER > 1:
            self.skipTest("a sanitizer's run-time library must be loaded first")
        self.slow = self.dir / "slow"
        self.slow.mkdir()
        self.stall = self.dir / "stall"
        self.seen = self.dir / "stall.seen"
        self.env = {"LD_PRELOAD": str(LIBRARY), "STALLED_FOLDER": str(self.slow),
                    "STALL": str(self.stall), "CUDA_VISIBLE_DEVICES": ""}
        self.addCleanup(lambda: self.stall.unlink(missing_ok=True))

    def stalled_in(self, operation):
        return until(lambda: self.seen.exists() and operation in self.seen.read_text().split(), 10,
                     f"a stalled {operation}")

    def log(self, name="stdout.log", rank=0, attempt=0):
        return next(self.slow.glob(f"*/attempt_{attempt}/{rank}/{name}"))


class TwoNodes(StalledFiles):
    def setUp(self):
        super().setUp()
        self.token = self.write("token", "0123456789abcdef0123456789abcdef", 0o600)
        self.port = free_port()

    def agent(self, node_rank, script, *options, env=None, stdout=None):
        with (open(stdout or self.dir / f"out{node_rank}", "wb") as out,
              open(self.dir / f"err{node_rank}", "wb") as err):
            return self.start(
                "--nnodes", 2, "--node-rank", node_rank, "--master-addr", "127.0.0.1",
                "--master-port", self.port, "--rdzv-token-file", self.token, "--keep-alive", 1,
                "--nproc", 1, *options, "--no-python", "/bin/sh", "-c", script,
                env={"CUDA_VISIBLE_DEVICES": "", **(env or {})}, stdout=out, stderr=err)

    # The rank causes the stall and ends it after three times the keep-alive.
    SCRIPT = ('echo begin; echo > "$STALL"; for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; '
              'sleep 0.3; done; rm "$STALL"; echo end')
    LINES = "begin\n" + "".join(f"line {i}\n" for i in range(1, 11)) + "end\n"

    def assert_job_was_not_interrupted(self, agents):
        notes = "".join((self.dir / f"err{rank}").read_text() for rank in (0, 1))
        for agent in agents:
            self.assertEqual(agent.wait(30 * SLOWER), 0, notes)
        self.assertNotIn("lost", notes)

    def test_a_log_folder_that_stalls_costs_no_node(self):
        self.assert_job_was_not_interrupted([
            self.agent(0, "exec sleep 3"),
            self.agent(1, self.SCRIPT, "-r", 3, "--log-dir", self.slow, env=self.env)])
        self.assertIn("write", self.seen.read_text())
        self.assertEqual(self.log().read_text(), self.LINES)

    def test_a_leader_whose_stdout_stalls_keeps_its_nodes(self):
        self.assert_job_was_not_interrupted([
            self.agent(0, self.SCRIPT, env=self.env, stdout=self.slow / "out"),
            self.agent(1, "exec sleep 3")])
        self.assertIn("write", self.seen.read_text())
        self.assertEqual((self.slow / "out").read_text(), self.LINES)

    def test_a_folder_of_notes_that_stalls_costs_no_node(self):
        """The leader renews its note four times per keep-alive."""
        (self.slow / "mgpu-run").mkdir(mode=0o700)
        self.assert_job_was_not_interrupted([
            self.agent(0, self.SCRIPT, env={**self.env, "XDG_RUNTIME_DIR": str(self.slow)}),
            self.agent(1, "exec sleep 3")])
        self.assertTrue(self.seen.read_text())
        self.assertEqual((self.dir / "out0").read_text(), self.LINES)

    def test_a_log_folder_that_stalls_at_the_start_of_a_round_costs_no_node(self):
        self.stall.write_text("")
        agents = [self.agent(0, "echo ran >&2"),
                  self.agent(1, "echo ran >&2", "--log-dir", self.slow, env=self.env)]
        self.stalled_in("mkdir")
        err = self.dir / "err0"
        until(lambda: "ran" in err.read_text(), 20, "the rank of the other node")
        time.sleep(3)  # three times the keep-alive: that nothing happens needs time
        self.assertNotIn("ran", (self.dir / "err1").read_text())
        self.stall.unlink()
        self.assert_job_was_not_interrupted(agents)
        self.assertIn("ran", (self.dir / "err1").read_text())


class OneNode(StalledFiles):
    def test_a_stop_request_ends_a_job_whose_ranks_wait_for_their_log_folders(self):
        self.stall.write_text("")
        job = self.start_sh(2, "echo > ran", "--log-dir", self.slow, env=self.env)
        self.stalled_in("mkdir")
        job.terminate()
        self.stall.unlink()
        self.assertEqual(job.wait(20), 143)
        self.assertFalse((self.dir / "ran").exists())

    def test_a_second_signal_ends_the_wait_for_files(self):
        job = self.start_sh(1, 'echo > "$STALL"; echo lost', "-r", 3, "--log-dir", self.slow,
                            env=self.env)
        self.stalled_in("write")
        until(lambda: len(children(job.pid)) == 0, 10, "the end of the rank and the guard")
        self.assertIsNone(job.poll())
        job.terminate()
        self.assertEqual(job.wait(20), 0)

    def test_a_failed_rank_restarts_and_is_reported_although_the_folder_stalled(self):
        job = self.start_sh(1, 'echo $TORCHELASTIC_RESTART_COUNT >> ran; '
                               'echo \'{"message": "it broke"}\' > "$TORCHELASTIC_ERROR_FILE"; '
                               '[ -s second ] || echo > "$STALL"; '
                               'echo x > second; exit 3', "--max-restarts", 1, "--log-dir",
                            self.slow, "--report", self.slow / "report", env=self.env)
        self.stalled_in("open")
        self.assertEqual((self.dir / "ran").read_text(), "0\n")
        self.stall.unlink()
        self.assertEqual(job.wait(20), 3)
        self.assertEqual((self.dir / "ran").read_text(), "0\n1\n")
        report = json.loads((self.slow / "report").read_text())
        self.assertEqual([attempt["cause"]["text"] for attempt in report["attempts"]], ["it broke"] * 2)

    def test_a_log_that_stalls_blocks_the_rank_and_loses_nothing(self):
        total = 4_000_000
        job = self.start_sh(1, f'echo $$ > pid; echo > "$STALL"; head -c {total} /dev/zero | '
                               'tr "\\0" x; echo; echo > done', "-r", 1, "--log-dir", self.slow,
                            env=self.env)
        self.stalled_in("write")
        (worker,) = self.pids_from("pid", 1)
        memory = until(lambda: self.steady_memory(job.pid), 20, "a queue that does not grow")
        self.assertLess(memory, 16 << 20)
        self.assertTrue(alive(worker))
        self.assertFalse((self.dir / "done").exists())
        self.stall.unlink()
        self.assertEqual(job.wait(20), 0)
        self.assertEqual(self.log().read_text(), "x" * total + "\n")

    @staticmethod
    def steady_memory(pid):
        def resident():
            return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        before = resident()
        time.sleep(0.2)
        return before if resident() == before else 0

    def test_logs_are_complete_at_the_end_although_the_last_write_stalled(self):
        job = self.start_sh(1, 'echo > "$STALL"; echo out; echo err >&2', "-r", 3,
                            "--log-dir", self.slow, env=self.env)
        self.stalled_in("write")
        self.stall.unlink()
        self.assertEqual(job.wait(20), 0)
        self.assertEqual((self.log().read_text(), self.log("stderr.log").read_text()),
                         ("out\n", "err\n"))

    def test_the_last_output_of_a_failed_rank_is_kept_although_the_folder_stalled(self):
        job = self.start_sh(1, 'echo > "$STALL"; echo why >&2; exit 3', "--log-dir", self.slow,
                            "--grace", 1, env=self.env)
        self.stalled_in("open")
        self.stall.unlink()
        self.assertEqual(job.wait(20), 3)
        self.assertEqual(self.log("stderr.log").read_text(), "why\n")

    def test_a_stop_request_is_handled_while_the_log_folder_stalls(self):
        job = self.start_sh(1, 'trap "echo > stopped; exit 0" TERM; echo > "$STALL"; '
                               'while :; do echo line; sleep 0.05; done', "-r", 1,
                            "--log-dir", self.slow, env=self.env)
        self.stalled_in("write")
        job.terminate()
        self.wait_for_files("stopped", 1)
        self.stall.unlink()
        self.assertEqual(job.wait(20), 143)


if __name__ == "__main__":
    unittest.main()
