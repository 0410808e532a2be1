"""Each defect of torchrun that was reproduced on one node, as a test that passes here."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

from client_harness import PROGRAMS, PYTHON, TorchTest
from harness import MGPU_RUN, SLOWER, alive, environment

WAIT = "echo $$ > pid.$RANK; while :; do sleep 0.02; done"


class Defects(TorchTest):
    def test_stale_store_keys_after_a_restart(self):
        for _ in range(3):
            job = self.torch("-n", 2, "--max-restarts", 5, PROGRAMS / "fails_twice.py", limit=60)
            self.assertEqual(job.returncode, 0, job.err)
            self.assertEqual(job.out, "done in attempt 2\n" * 2)
            ends = [a["first_failure"]["exit_code"] for a in job.report["attempts"][:2]]
            self.assertEqual(ends, [7, 7])

    def test_orphans_of_a_killed_launcher(self):
        job = self.start_sh(2, WAIT)
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGKILL)
        job.wait()
        self.assert_all_gone(pids)

    def test_usr1_ends_the_launcher_and_orphans_the_workers(self):
        job = self.start_sh(2, 'trap "" USR1; ' + WAIT)
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        self.assertIsNone(job.poll())
        self.assertTrue(all(map(alive, pids)))

    def test_nohup_does_not_help(self):
        job = subprocess.Popen(["nohup", MGPU_RUN, "-n", "1", "--no-python", "/bin/sh", "-c", WAIT],
                               cwd=self.dir, env=environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(job)
        (pid,) = self.pids_from("pid.0", 1)
        job.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        self.assertIsNone(job.poll())
        self.assertTrue(alive(pid))

    def test_the_shutdown_timeout_is_ignored_when_a_rank_fails(self):
        began = time.monotonic()
        job = self.sh(2, 'trap "" TERM; [ $RANK = 1 ] && { sleep 0.2; exit 3; }; '
                         'while :; do sleep 0.02; done', "--shutdown-timeout", 1)
        self.assertEqual(job.returncode, 3)
        self.assertLess(time.monotonic() - began, 5 * SLOWER)

    def test_logs_of_the_previous_incarnation_are_deleted(self):
        self.sh(1, 'echo "attempt $TORCHELASTIC_RESTART_COUNT"; exit 1', "--max-restarts", 1,
                "--log-dir", self.dir / "logs", "-r", "1")
        self.assertEqual(sorted(p.read_text() for p in (self.dir / "logs").glob("*/*/0/stdout.log")),
                         ["attempt 0\n", "attempt 1\n"])

    def test_local_ranks_from_10_on_cannot_be_redirected(self):
        self.sh(12, "echo rank $RANK", "-r", "0:1,11:3", "--log-dir", self.dir / "logs")
        self.assertEqual([p.read_text() for p in (self.dir / "logs").glob("*/*/11/stdout.log")],
                         ["rank 11\n"])

    def test_the_exit_status_is_always_1(self):
        self.assertEqual(self.sh(2, "exit $((RANK * 42))").returncode, 42)
        self.assertEqual(self.sh(1, "kill -9 $$").returncode, 137)

    def test_an_own_host_name_that_does_not_resolve_hangs_for_ten_minutes(self):
        probe = subprocess.run(["unshare", "-u", "hostname", "no-such-host-here"],
                               capture_output=True)
        if probe.returncode != 0:
            self.skipTest("no host name of our own can be set here")
        began = time.monotonic()
        job = subprocess.run(
            ["unshare", "-u", "sh", "-c", 'hostname no-such-host-here; exec "$@"', "-", MGPU_RUN,
             "-n", "2", PROGRAMS / "collectives.py"], capture_output=True, text=True, timeout=120,
            env=environment(PYTHON_EXEC=PYTHON, GLOO_SOCKET_IFNAME="lo"))
        self.assertEqual((job.returncode, sorted(job.stdout.splitlines())), (0, ["ok 0", "ok 1"]),
                         job.stderr)
        self.assertLess(time.monotonic() - began, 60 * SLOWER)


if __name__ == "__main__":
    unittest.main()
