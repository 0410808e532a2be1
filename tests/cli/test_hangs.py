"""Jobs that hang: found by their heartbeats on the worker socket, ended, and named."""

import json
import os
import pathlib
import signal
import textwrap
import time
import unittest

from harness import JobTest, until

# A rank that sends heartbeats, and waits for the others' steps as a collective does.
RANKS = textwrap.dedent('''
    import json, os, pathlib, signal, socket, sys, time
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    launcher = socket.socket(socket.AF_UNIX)
    launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\\0", 1))
    def send(**line):
        launcher.sendall(json.dumps({"rank": rank, **line}).encode() + b"\\n")
    def done(step, of):
        return pathlib.Path(f"{attempt}.{of}.{step}")
    def step(number):
        done(number, rank).touch()
        while not all(done(number, of).exists() for of in range(size)): time.sleep(0.01)
        send(step=number)
''')


class Hangs(JobTest):
    def job(self, ranks, text, *options):
        return self.run_job("-n", ranks, "--grace", 5, *options,
                            self.script(RANKS + textwrap.dedent(text)))

    def start_job(self, ranks, text, *options):
        return self.start("--report", self.dir / "report.json", "-n", ranks, "--grace", 5, *options,
                          self.script(RANKS + textwrap.dedent(text)))

    def test_the_rank_that_does_not_take_part_is_named(self):
        job = self.job(3, '''
            for number in range(1, 5): step(number)
            if rank == 1:
                while True: time.sleep(1)
            done(5, rank).touch()
            send(step=5)
            while True: time.sleep(1)
        ''', "--hang-timeout", 1)
        self.assertEqual(job.returncode, 137, job.err)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["cause"]["kind"], "hang")
        self.assertEqual(attempt["first_failure"]["rank"], 1)
        self.assertRegex(attempt["cause"]["text"],
                         r"^hang: no rank made progress for 1\.\d s \(limit 1\.0 s, from --hang-timeout\); "
                         "rank 1 has completed 4 steps, other ranks 5; rank 1 is at .*, while ranks 0, 2 are at .*")
        self.assertEqual(attempt["last_step"], 5)
        self.assertIn("mgpu-run: " + attempt["cause"]["text"][:30], job.err)

    def test_a_suspended_rank_is_named_and_a_restart_follows(self):
        job = self.job(3, '''
            for number in range(1, 6): step(number)
            if attempt == "0" and rank == 2: os.kill(os.getpid(), signal.SIGSTOP)
            step(6)
        ''', "--hang-timeout", 1, "--max-restarts", 1)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("rank 2 failed: hang: no rank made progress", job.err)
        self.assertIn("rank 2 is suspended by a signal or a debugger; restarting all ranks", job.err)
        self.assertEqual(job.report["attempts"][0]["first_failure"]["rank"], 2)

    def test_phases_and_first_steps_take_longer(self):
        job = self.job(2, '''
            send(phase="loading")
            time.sleep(1.5)
            for number in range(1, 5): step(number)
            send(phase="checkpoint")
            time.sleep(1.5)
            step(5)
        ''', "--hang-timeout", 1)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertNotIn("hang", job.err)

    def test_a_program_that_stops_reporting_is_not_watched(self):
        job = self.job(2, '''
            for number in range(1, 5): step(number)
            launcher.close()
            time.sleep(2)
        ''', "--hang-timeout", 1)
        self.assertEqual(job.returncode, 0, job.err)

    def test_a_connection_that_ends_with_a_malformed_heartbeat_is_not_watched(self):
        job = self.job(1, '''
            for number in range(1, 5): step(number)
            launcher.sendall(b"x" * 5000)
            assert launcher.recv(1) == b""
            time.sleep(2)
        ''', "--hang-timeout", 1)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("to the worker socket: its line is too long", job.err)

    def test_a_stopped_launcher_is_no_hang(self):
        job = self.start_job(1, '''
            for number in range(1, 5): step(number)
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(2)
            pathlib.Path("ready").write_text("yes")
            for number in range(5, 7): step(number); time.sleep(0.5)
        ''', "--hang-timeout", 1)
        self.wait_for_files("ready", 1)
        os.kill(job.pid, signal.SIGCONT)
        self.assertEqual(job.wait(20), 0)

    def test_a_suspended_job_is_no_hang(self):
        job = self.start_job(1, '''
            for number in range(1, 5): step(number)
            pathlib.Path("ready").write_text("yes")
            while not pathlib.Path("go").exists(): step(number := number + 1); time.sleep(0.1)
        ''', "--hang-timeout", 1)
        self.wait_for_files("ready", 1)
        os.kill(job.pid, signal.SIGTSTP)
        stat = pathlib.Path(f"/proc/{job.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        begin = time.monotonic()
        until(lambda: time.monotonic() - begin > 2)
        (self.dir / "go").touch()
        os.kill(job.pid, signal.SIGCONT)
        self.assertEqual(job.wait(20), 0)

    def test_a_straggler_is_named_once_with_its_cost(self):
        job = self.job(3, '''
            for number in range(1, 40):
                send(step=number, busy_ms=30 if rank == 1 else 20)
                done(number, rank).touch()
                while not all(done(number, of).exists() for of in range(size)): time.sleep(0.001)
        ''')
        self.assertEqual(job.returncode, 0, job.err)
        self.assertRegex(job.err, r"^mgpu-run: rank 1 on \S+ is a straggler: its own work takes 30 ms per step, "
                                  r"that of the other ranks 20 ms \(1\.50 times as long\); the others wait "
                                  r"up to 10 ms in every step\n$")

    def test_the_status_shows_how_far_ranks_are(self):
        (self.dir / "run").mkdir(mode=0o700)
        own = {"XDG_RUNTIME_DIR": str(self.dir / "run")}
        job = self.start("-n", 2, "--hang-timeout", 1, self.script(RANKS + textwrap.dedent('''
            for number in range(1, 10):
                step(number)
                send(step=number, busy_ms=10 + 5 * rank)
            while not pathlib.Path("go").exists(): send(phase=f"p{time.time()}"); time.sleep(0.1)
        ''')), env=own)
        def progress():
            asked = self.start("status", "--json", env=own)
            status = json.loads(asked.communicate()[0])
            found = status and status[0]["nodes"][0].get("progress")
            return found and len(found) == 2 and all(rank.get("skew") for rank in found) and found
        found = until(progress)
        self.assertEqual([(rank["rank"], rank["step"], rank["busy_ms"], rank["skew"]) for rank in found],
                         [(0, 9, 10, 2 / 3), (1, 9, 15, 1.5)])
        (self.dir / "go").touch()
        self.assertEqual(job.wait(20), 0)

    def test_a_limit_that_is_no_number_is_a_usage_error(self):
        job = self.run_job("-n", 1, "--hang-timeout", "0.5", "true")
        self.assertEqual(job.returncode, 2)
        self.assertEqual(job.err, "mgpu-run: --hang-timeout 0.5: need auto, off, or seconds from 1 "
                                  "to 31622400, for example 600\n")


if __name__ == "__main__":
    unittest.main()
