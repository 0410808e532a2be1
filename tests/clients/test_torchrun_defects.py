"""Defects of torchrun 2.14.1 on one node, with tests that mgpu-run does not have them.

The numbers are those of the list of its defects; 2 and 3 are about several nodes.
"""

import signal
import socket
import subprocess
import sys
import unittest

from torch_job import MGPU_RUN, SLOWER, TorchJobTest, alive

WAIT_FOR_GO = 'echo $$ > "pid.$RANK"; until [ -e go ]; do sleep 0.01; done'
NOWHERE = "no-such-host.invalid"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Restart(TorchJobTest):
    def check_failing_twice(self, *options):
        job = self.program(2, "failing_twice.py", options=["--max-restarts", 5, *options])
        self.assert_ended_well(job)
        self.assertEqual(self.results(job), [{"rank": r, "attempt": 2, "sum": 2} for r in range(2)])
        ends = [(a["first_failure"]["rank"], a["first_failure"]["exit_code"])
                for a in job.report["attempts"][:-1]]
        self.assertEqual(ends, [(1, 7), (1, 7)])  # no restart was used for anything else

    def test_1_an_attempt_finds_no_stale_keys_of_the_one_before(self):
        for run in range(3):
            with self.subTest(run=run):
                self.check_failing_twice("--standalone")

    def test_1_an_attempt_finds_no_stale_keys_on_a_fixed_port(self):
        for run in range(2):
            with self.subTest(run=run):
                self.check_failing_twice("--master-port", free_port())

    def test_1_an_attempt_finds_no_stale_keys_when_rank_0_binds_a_fixed_port(self):
        self.check_failing_twice("--rank0-store", "--master-port", free_port())

    def test_7_the_logs_of_every_attempt_and_of_every_job_are_kept(self):
        for job in ("first", "second"):
            self.sh(2, f'echo "{job} job, attempt $TORCHELASTIC_RESTART_COUNT"; sleep 0.1; exit 1',
                    "--max-restarts", 2, "--log-dir", self.dir / "logs", "--rdzv-id", "x", "-r", 3)
        texts = {rank: sorted(path.read_text() for path in
                              (self.dir / "logs").glob(f"x_*/attempt_*/{rank}/stdout.log"))
                 for rank in range(2)}
        expected = [f"{job} job, attempt {n}\n" for job in ("first", "second") for n in range(3)]
        self.assertEqual(texts, {0: expected, 1: expected})


class Signals(TorchJobTest):
    def go(self):
        (self.dir / "go").write_text("")

    def test_4_sigkill_of_the_launcher_leaves_no_orphan_process(self):
        job = self.start_sh(2, WAIT_FOR_GO)
        pids = self.pids_from("pid.*", 2)
        job.kill()
        job.wait()
        self.assert_all_gone(pids, 1.0)

    def test_4_sigusr1_is_forwarded_to_the_ranks_and_the_job_continues(self):
        job = self.start_sh(2, 'trap "echo > usr1.$RANK" USR1; ' + WAIT_FOR_GO)
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGUSR1)
        self.wait_for_files("usr1.*", 2)
        self.assertTrue(all(alive(pid) for pid in [job.pid, *pids]))
        self.go()
        self.assertEqual(job.wait(20 * SLOWER), 0)

    def test_4_sigusr1_that_kills_the_ranks_leaves_no_process(self):
        job = self.start_sh(2, WAIT_FOR_GO)
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(20 * SLOWER), 128 + signal.SIGUSR1)
        self.assertFalse(any(map(alive, pids)))

    def test_5_under_nohup_a_hangup_is_ignored(self):
        nohup = self.write("nohup", f"#!/bin/sh\nexec nohup '{MGPU_RUN}' \"$@\"\n", 0o755)
        job = self.start_sh(2, 'trap "echo > usr1.$RANK" USR1; ' + WAIT_FOR_GO, program=nohup)
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGHUP)
        job.send_signal(signal.SIGUSR1)  # once it has arrived, the hangup has been handled
        self.wait_for_files("usr1.*", 2)
        self.assertTrue(all(alive(pid) for pid in [job.pid, *pids]))
        self.go()
        self.assertEqual(job.wait(20 * SLOWER), 0)

    def test_without_nohup_the_same_hangup_ends_the_job(self):
        job = self.start_sh(2, WAIT_FOR_GO)
        self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGHUP)
        self.assertEqual(job.wait(20 * SLOWER), 128 + signal.SIGHUP)

    def test_6_the_shutdown_timeout_applies_after_a_failure_too(self):
        job = self.sh(2, 'trap "" TERM; echo $$ > "pid.$RANK"; [ $RANK = 1 ] && '
                         'until [ -e pid.0 ]; do sleep 0.01; done && exit 5; '
                         'while :; do sleep 0.05; done', "--shutdown-timeout", 1)
        self.assertEqual(job.returncode, 5)
        self.assertGreaterEqual(job.report["lasted_s"], 1.0)
        self.assertLess(job.report["lasted_s"], 5.0 * SLOWER)
        (other,) = [end for end in job.report["attempts"][0]["ranks"] if end["rank"] == 0]
        self.assertEqual((other["signal"], other["ended_by_us"]), ("SIGKILL", True))


class Flags(TorchJobTest):
    def test_8_a_rank_of_two_digits_can_be_redirected(self):
        job = self.sh(12, 'echo "out $RANK"; echo "err $RANK" >&2', "-r", "0:1,11:3", "--log-dir",
                      self.dir / "logs")
        self.assert_ended_well(job)
        redirected = {f"{path.parent.name}/{path.name}": path.read_text()
                      for path in (self.dir / "logs").rglob("std*.log") if path.stat().st_size}
        self.assertEqual(redirected, {"0/stdout.log": "out 0\n", "11/stdout.log": "out 11\n",
                                      "11/stderr.log": "err 11\n"})
        self.assertEqual(sorted(job.out.splitlines()), sorted(f"out {r}" for r in range(1, 11)))
        self.assertEqual(sorted(job.err.splitlines()), sorted(f"err {r}" for r in range(11)))

    def test_8_a_rank_of_two_digits_can_be_teed(self):
        job = self.sh(12, 'echo "out $RANK"', "-t", "1:1,10:1", "--log-dir", self.dir / "logs")
        self.assert_ended_well(job)
        teed = {path.parent.name: path.read_text()
                for path in (self.dir / "logs").rglob("stdout.log") if path.stat().st_size}
        self.assertEqual(teed, {"1": "out 1\n", "10": "out 10\n"})
        self.assertEqual({line for line in job.out.splitlines() if line.startswith("[")},
                         {"[default1]:out 1", "[default10]:out 10"})

    def test_9_the_exit_status_is_that_of_the_rank(self):
        for end, expected in (("exit 3", 3), ("exit 77", 77), ("kill -9 $$", 137),
                              ("kill -6 $$", 134)):
            with self.subTest(end=end):
                job = self.sh(2, f'ulimit -c 0; [ $RANK = 0 ] || {end}; sleep 60')
                self.assertEqual(job.returncode, expected)

    def test_9_the_exit_status_is_that_of_the_stop_signal(self):
        for signo in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=signo.name):
                job = self.start_sh(2, WAIT_FOR_GO.replace("pid", signo.name))
                self.pids_from(f"{signo.name}.*", 2)
                job.send_signal(signo)
                self.assertEqual(job.wait(20 * SLOWER), 128 + signo)


class HostName(TorchJobTest):
    def unshared(self, *command):
        """A program that runs the command under a host name that does not resolve."""
        rename = (f"import os, socket, sys; socket.sethostname({NOWHERE!r}); "
                  "os.execv(sys.argv[1], sys.argv[1:])")
        return self.write("unshared", f"""#!/bin/sh
exec unshare -u '{sys.executable}' -c "{rename}" {' '.join(command)} "$@"
""", 0o755)

    def test_10_a_host_name_need_not_resolve(self):
        probe = subprocess.run([self.unshared("/bin/true")], capture_output=True, text=True)
        if probe.returncode != 0:
            self.skipTest(f"the host name cannot be changed here: {probe.stderr.strip()[-100:]}")
        look_up = f"import socket; socket.getaddrinfo({NOWHERE!r}, None)"
        if subprocess.run([sys.executable, "-c", look_up], capture_output=True).returncode == 0:
            self.skipTest(f"{NOWHERE} resolves here")
        job = self.program(2, "collectives.py", program=self.unshared(MGPU_RUN))
        self.assert_ended_well(job)
        self.assertEqual(job.report["host"], NOWHERE)
        self.assertEqual([line["world"] for line in self.results(job)], [2, 2])
        self.assertLess(job.report["lasted_s"], 30 * SLOWER)  # torchrun gives up after 10 minutes


if __name__ == "__main__":
    unittest.main()
