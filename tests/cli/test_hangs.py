"""Jobs that hang: found by their heartbeats on the worker socket, ended, and named."""

import json
import os
import pathlib
import signal
import subprocess
import sys
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


# A debugger that suspends a process, like any that reads its stacks, until a file exists.
DEBUGGER = textwrap.dedent('''\
    #!{python} -SE
    import ctypes, os, pathlib, sys, time
    folder, pid = pathlib.Path("{folder}"), int(sys.argv[sys.argv.index("-p") + 1])
    if (folder / f"pid.{{pid}}").read_text() == "1": sys.exit()
    attach = 16
    ctypes.CDLL(None).ptrace(attach, pid, None, None)
    while pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(") ")[2][0] != "t": time.sleep(0.01)
    (folder / f"examined.{{pid}}").touch()
    while not (folder / "go").exists(): time.sleep(0.01)
''')


class Hangs(JobTest):
    def job(self, ranks, text, *options, env=None):
        return self.run_job("-n", ranks, "--grace", 5, *options,
                            self.script(RANKS + textwrap.dedent(text)), env=env)

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

    def test_a_rank_that_is_being_examined_is_not_taken_for_a_suspended_one(self):
        tools = self.dir / "tools"
        tools.mkdir()
        for name in ("eu-stack", "gdb"):
            self.write(f"tools/{name}", DEBUGGER.format(python=sys.executable, folder=self.dir), 0o755)
        job = self.job(3, '''
            pathlib.Path(f"pid.{os.getpid()}").write_text(str(rank))
            for number in range(1, 6): step(number)
            while rank != 1 or not list(pathlib.Path().glob("examined.*")): time.sleep(0.01)
            sys.exit("RuntimeError: Timed out waiting 4000ms for recv operation to complete")
        ''', "--hang-timeout", 1, env={"PATH": f"{tools}:{os.environ['PATH']}"})
        self.assertEqual(job.returncode, 1, job.err)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["first_failure"]["rank"], 1, attempt["cause"])
        self.assertNotIn("suspended", attempt["cause"]["text"])

    def test_a_full_disk_costs_the_evidence_of_a_hang_and_nothing_else(self):
        full = self.dir / "full"
        full.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        try:
            job = self.job(2, '''
                for number in range(1, 5): step(number)
                if rank == 1:
                    try:
                        with open("full/filler", "wb", 0) as filler:
                            while True: filler.write(bytes(4096))
                    except OSError: pass
                else: send(step=5)
                while True: time.sleep(1)
            ''', "--hang-timeout", 1, "--log-dir", full / "logs")
            left = [path.name for path in full.glob("logs/*/attempt_0/hang/*")]
        finally:
            subprocess.run(["umount", full], check=True)
        self.assertEqual(job.returncode, 137, job.err)
        attempt = job.report["attempts"][0]
        self.assertEqual((attempt["cause"]["kind"], attempt["first_failure"]["rank"]), ("hang", 1))
        problems = [line for line in job.err.splitlines() if "the evidence of the hang is incomplete" in line]
        self.assertEqual(len(problems), 1, job.err)
        self.assertIn("attempt_0/hang: No space left on device", problems[0])
        self.assertEqual(left, [])
        self.assertNotIn("summary.txt", job.err)
        self.assertNotIn("evidence", attempt)

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

    # --- Programs that report no steps, judged by their activity

    def script_job(self, text, *options):
        return self.run_job("-n", 2, "--grace", 5, *options, self.script(
            "import os, pathlib, subprocess, sys, time\nrank = int(os.environ['RANK'])\n" + textwrap.dedent(text)))

    def test_a_script_that_sleeps_for_ever_hangs_whatever_counts(self):
        for signs in ("output", "cpu", "output,cpu"):
            job = self.script_job('''
                for line in range(20):
                    print(f"rank {rank} at {line}", flush=True)
                    time.sleep(0.05)
                if rank == 1: time.sleep(1000)
                while True: time.sleep(0.5)
            ''', "--hang-timeout", 1, "--hang-activity", signs)
            self.assertEqual(job.returncode, 137, job.err)
            cause = job.report["attempts"][0]["cause"]
            self.assertEqual(cause["kind"], "hang")
            self.assertIn({"output": "hang: no rank wrote output for 1.", "cpu": "hang: no rank used a CPU for 1.",
                           "output,cpu": "hang: no rank wrote output or used a CPU for 1."}[signs], cause["text"])
            self.assertIn("rank 1 at 19", job.out)

    def test_a_script_that_waits_busily_hangs_only_if_its_cpu_time_does_not_count(self):
        waits = '''
            print("waiting", flush=True)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end: pass
        '''
        job = self.script_job(waits.replace("SECONDS", "1000"), "--hang-timeout", 1, "--hang-activity", "output")
        self.assertEqual(job.report["attempts"][0]["cause"]["kind"], "hang", job.err)
        job = self.script_job(waits.replace("SECONDS", "3"), "--hang-timeout", 1, "--hang-activity", "output,cpu")
        self.assertEqual(job.returncode, 0, job.err)

    def test_the_cpu_time_of_child_processes_counts(self):
        job = self.script_job('''
            spin = "import time\\nend = time.monotonic() + 3\\nwhile time.monotonic() < end: pass"
            subprocess.run(["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, spin]) if rank == 1 else time.sleep(3)
        ''', "--hang-timeout", 1, "--hang-activity", "cpu")
        self.assertEqual(job.returncode, 0, job.err)

    def test_without_the_option_a_script_may_sleep(self):
        job = self.script_job("time.sleep(2.5)", "--hang-timeout", 1)
        self.assertEqual((job.returncode, job.err), (0, ""))

    def test_ranks_that_report_their_steps_are_not_judged_by_their_activity(self):
        job = self.job(2, '''
            send(phase="loading")
            time.sleep(2.5)
            step(1)
        ''', "--hang-timeout", 1, "--hang-activity", "output,cpu")
        self.assertEqual((job.returncode, job.err), (0, ""))

    def test_a_script_without_a_gpu_gets_a_note(self):
        job = self.sh(1, "true", "--hang-timeout", 1, "--hang-activity", "gpu", env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(job.returncode, 0)
        self.assertEqual(job.err, "mgpu-run: --hang-activity gpu has no effect: the job uses no GPU of this node\n")

    def test_activity_needs_a_limit(self):
        for options in ((), ("--hang-timeout", "off"), ("--hang-timeout", "auto")):
            job = self.run_job("-n", 1, "--hang-activity", "output,cpu", *options, "true")
            self.assertEqual(job.returncode, 2)
            self.assertEqual(job.err, "mgpu-run: --hang-activity output,cpu: a limit for activity cannot be learned; "
                                      "add --hang-timeout SECONDS, for example --hang-timeout 1800\n")
        job = self.run_job("-n", 1, "--hang-activity", "disk", "--hang-timeout", 5, "true")
        self.assertEqual((job.returncode, job.err), (2, "mgpu-run: --hang-activity disk: need off, or a list of output, "
                                                        "cpu and gpu, for example output,gpu\n"))

    def test_a_limit_that_is_no_number_is_a_usage_error(self):
        job = self.run_job("-n", 1, "--hang-timeout", "0.5", "true")
        self.assertEqual(job.returncode, 2)
        self.assertEqual(job.err, "mgpu-run: --hang-timeout 0.5: need auto, off, or seconds from 1 "
                                  "to 31622400, for example 600\n")


if __name__ == "__main__":
    unittest.main()
