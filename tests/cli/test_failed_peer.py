"""What mgpu-run does with the other ranks after one has failed."""

import textwrap
import time
import unittest

from harness import JobTest, SLOWER

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
