"""What mgpu-run does with the other ranks after one has failed."""

import json
import os
import signal
import textwrap
import time
import unittest

from harness import JobTest, SLOWER, alive, until

# Rank 1 fails once rank 0 is ready. Rank 0 does not react to SIGTERM.
RANKS = textwrap.dedent('''
    import json, os, pathlib, signal, socket, sys, time
    ready = pathlib.Path("ready")
    def talk(**hello):
        launcher = socket.socket(socket.AF_UNIX)
        launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))
        launcher.sendall(json.dumps({"rank": int(os.environ["RANK"]), **hello}).encode() + b"\\n")
        return launcher
    if os.environ["RANK"] == "1":
        while not ready.exists(): time.sleep(0.01)
        sys.exit(3)
    signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("sigterm").touch())
''')


class FailedPeer(JobTest):
    def ends(self, text, *options, limit):
        began = time.monotonic()
        job = self.run_job("-n", 2, *options, self.script(RANKS + textwrap.dedent(text)))
        self.assertEqual(job.returncode, 3, job.err)
        self.assertLess(time.monotonic() - began, limit * SLOWER)
        return {end["rank"]: end for end in job.report["attempts"][0]["ranks"]}

    def test_a_rank_that_requested_it_receives_an_abort_request(self):
        ends = self.ends('''
            launcher = talk(aborts=True)
            ready.write_text("yes")
            told = launcher.makefile().readline()
            os._exit(40 + json.loads(told)["abort"])
        ''', limit=8)
        self.assertEqual((ends[0]["exit_code"], ends[0]["ended_by_us"]), (41, True))
        self.assertFalse((self.dir / "sigterm").exists())

    def test_a_rank_that_does_not_abort_is_killed(self):
        ends = self.ends('''
            launcher = talk(aborts=True)
            ready.write_text("yes")
            while True: time.sleep(1)
        ''', limit=8)
        self.assertEqual(ends[0]["signal"], "SIGKILL")

    def test_a_suspended_rank_aborts_too(self):
        ends = self.ends('''
            launcher = talk(aborts=True)
            if os.fork() == 0:
                while open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0] != "T":
                    time.sleep(0.01)
                ready.write_text("yes")
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
            json.loads(launcher.makefile().readline())
            os._exit(41)
        ''', limit=8)
        self.assertEqual(ends[0]["exit_code"], 41)

    def test_the_failure_grace_limits_the_wait_for_other_ranks(self):
        ends = self.ends('''
            ready.write_text("yes")
            while True: time.sleep(1)
        ''', "--failure-grace", "0.3", limit=8)
        self.assertEqual(ends[0]["signal"], "SIGKILL")
        self.assertTrue((self.dir / "sigterm").exists())

    def test_a_stop_that_is_no_failure_leaves_the_whole_grace(self):
        job = self.start("-n", 1, "--failure-grace", "0.1", self.script(RANKS + textwrap.dedent('''
            launcher = talk(aborts=True)
            ready.write_text("yes")
            while not pathlib.Path("sigterm").exists(): time.sleep(0.01)
            launcher.settimeout(0.5)
            try: launcher.recv(1)
            except TimeoutError: pathlib.Path("saved").touch()
        ''')))
        self.wait_for_files("ready", 1)
        job.terminate()
        self.assertEqual(job.wait(20 * SLOWER), 143)
        self.assertTrue((self.dir / "saved").exists())

    def start_stopping(self, *options):
        """A job that stops, whose rank 0 saves for long. Returns it and the process of rank 1."""
        job = self.start("-n", 2, "--report", self.dir / "report.json", *options, self.script("""
import json, os, pathlib, signal, socket, sys, time
rank = os.environ["RANK"]
launcher = socket.socket(socket.AF_UNIX)
launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))
launcher.sendall(json.dumps({"rank": int(rank), "aborts": sys.argv[1] == "aborts"}).encode() + b"\\n")
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
pathlib.Path("ready." + rank).write_text(str(os.getpid()))
while not stops: time.sleep(0.01)
pathlib.Path("saving." + rank).write_text("yes")
if rank == "0" and sys.argv[1] == "aborts":
    os._exit(40 + json.loads(launcher.makefile().readline())["abort"])
while not pathlib.Path("saved").exists(): time.sleep(0.01)
os._exit(100 + len(stops))
"""), options and "aborts" or "saves")
        pids = self.pids_from("ready.*", 2)
        job.terminate()
        self.wait_for_files("saving.*", 2)
        return job, pids[1]

    def exit_code_of_rank_0(self):
        ends = json.loads((self.dir / "report.json").read_text())["attempts"][0]["ranks"]
        return next(end["exit_code"] for end in ends if end["rank"] == 0)

    def test_ranks_that_save_before_a_stop_do_not_wait_for_a_killed_one(self):
        job, killed = self.start_stopping("--grace", 60)
        os.kill(killed, signal.SIGKILL)
        _, err = job.communicate(timeout=10 * SLOWER)
        self.assertEqual(job.returncode, 143)
        self.assertIn("rank 1 was killed by SIGKILL (signal 9) while the ranks stopped; the others "
                      "do not wait for it\n", err.decode())
        self.assertEqual(self.exit_code_of_rank_0(), 41)

    def test_ranks_that_cannot_abort_save_in_peace_when_another_one_is_killed(self):
        job, killed = self.start_stopping()
        os.kill(killed, signal.SIGKILL)
        until(lambda: not alive(killed), what="the end of rank 1")
        (self.dir / "saved").touch()
        _, err = job.communicate(timeout=10 * SLOWER)
        self.assertIn("rank 1 was killed by SIGKILL (signal 9) while the ranks stopped\n",
                      err.decode())
        self.assertEqual(self.exit_code_of_rank_0(), 101)  # one SIGTERM

    def test_a_malformed_line_is_reported_and_the_job_goes_on(self):
        job = self.run_job("-n", 1, self.script(RANKS + textwrap.dedent('''
            launcher = talk()
            launcher.sendall(b"step 5\\n")
            assert launcher.recv(1) == b""
        ''')))
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("to the worker socket: its line is not a JSON object", job.err)

    def test_a_failure_grace_beyond_the_grace_is_a_usage_error(self):
        job = self.run_job("-n", 1, "--grace", 5, "--failure-grace", 6, "true")
        self.assertEqual(job.returncode, 2)
        self.assertEqual(job.err, "mgpu-run: --failure-grace 6: must be at most --grace, which is 5; "
                                  "raise --grace too\n")


if __name__ == "__main__":
    unittest.main()
