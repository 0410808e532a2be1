"""Signals to mgpu-run."""

import os
import signal
import subprocess
import time
import unittest

from harness import JobTest, SLOWER, alive, until

WAIT = 'echo $$ > pid.$RANK; while :; do sleep 0.02; done'


class StopSignals(JobTest):
    def test_a_stop_signal_n_stops_the_workers_and_gives_status_128_plus_n(self):
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(signal=signo):
                for old in self.dir.glob("pid.*"):
                    old.unlink()
                job = self.start_sh(2, "ulimit -c 0; " + WAIT)
                pids = self.pids_from("pid.*", 2)
                job.send_signal(signo)
                self.assertEqual(job.wait(10 * SLOWER), 128 + signo)
                self.assert_all_gone(pids)
                self.assertIn(f"stopped by {signo.name}", job.stderr.read().decode())

    def test_workers_receive_the_signal_that_mgpu_run_received(self):
        for signo in ("TERM", "INT", "HUP", "QUIT"):
            with self.subTest(signal=signo):
                for old in self.dir.glob("*.*"):
                    old.unlink()
                job = self.start_sh(1, f'trap "echo {signo} > got.txt; exit 0" {signo}; ' + WAIT)
                self.pids_from("pid.*", 1)
                job.send_signal(getattr(signal, "SIG" + signo))
                self.assertEqual(job.wait(10 * SLOWER), 128 + getattr(signal, "SIG" + signo))
                self.assertEqual((self.dir / "got.txt").read_text().strip(), signo)

    def test_only_the_chosen_signals_stop_the_job(self):
        job = self.start_sh(1, 'trap "echo usr1 >> got" USR1; ' + WAIT,
                            "--signals-to-handle", "SIGUSR2,SIGTERM")
        self.pids_from("pid.*", 1)
        job.send_signal(signal.SIGUSR1)
        until(lambda: (self.dir / "got").exists())
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGUSR2)
        self.assertEqual(job.wait(10 * SLOWER), 128 + signal.SIGUSR2)

    def test_sigusr1_and_sigusr2_are_forwarded_to_every_rank(self):
        job = self.start_sh(3, 'trap "echo 1 >> got1.$RANK" USR1; trap "echo 2 >> got2.$RANK" USR2; '
                            + WAIT)
        self.pids_from("pid.*", 3)
        job.send_signal(signal.SIGUSR1)
        self.wait_for_files("got1.*", 3)
        job.send_signal(signal.SIGUSR2)
        self.wait_for_files("got2.*", 3)
        self.assertIsNone(job.poll())

    def test_a_signal_that_was_inherited_as_ignored_stays_ignored(self):
        job = self.start_sh(1, WAIT, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        (pid,) = self.pids_from("pid.*", 1)
        job.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        self.assertIsNone(job.poll())
        self.assertTrue(alive(pid))
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(10 * SLOWER), 128 + signal.SIGTERM)

    def test_a_second_interrupt_kills_the_workers_at_once(self):
        job = self.start_sh(2, 'trap "" INT TERM; ' + WAIT, "--grace", 60)
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGINT)
        time.sleep(0.1)
        self.assertIsNone(job.poll())
        began = time.monotonic()
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10 * SLOWER), 128 + signal.SIGINT)
        self.assertLess(time.monotonic() - began, 2 * SLOWER)
        self.assert_all_gone(pids)

    def test_a_sigterm_after_a_sigint_reaches_the_workers(self):
        job = self.start_sh(2, 'trap "" INT; trap "exit 0" TERM; ' + WAIT, "--grace", 60)
        self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGINT)
        time.sleep(0.1)
        self.assertIsNone(job.poll())
        began = time.monotonic()
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(10 * SLOWER), 128 + signal.SIGINT)
        self.assertLess(time.monotonic() - began, 5 * SLOWER)

    def test_the_grace_period_applies_to_a_stop_signal(self):
        self.grace_test(lambda job: job.send_signal(signal.SIGTERM))

    def test_the_grace_period_applies_when_a_rank_fails(self):
        self.grace_test(lambda job: (self.dir / "fail").write_text("x"))

    def grace_test(self, provoke):
        job = self.start_sh(2, 'trap "" TERM; echo $$ > pid.$RANK; while :; do '
                               '[ $RANK = 0 ] && [ -e fail ] && exit 3; sleep 0.01; done',
                            "--grace", "0.5")
        pids = self.pids_from("pid.*", 2)
        began = time.monotonic()
        provoke(job)
        job.wait(20 * SLOWER)
        took = time.monotonic() - began
        self.assertGreaterEqual(took, 0.49)
        self.assertLess(took, 2.5 * SLOWER)
        self.assert_all_gone(pids)


class RankOrItsGroup(JobTest):
    WORKER = ('import os, signal, subprocess, sys, time\n'
              'child = subprocess.Popen(["/bin/sh", "-c", "trap \'echo got > child; exit\' TERM; '
              'echo up > ready; while :; do sleep 0.02; done"])\n'
              'def stop(*_):\n'
              '    time.sleep(0.3)\n'
              '    open("child-at-save", "w").write(str(os.path.exists("child")))\n'
              '    os._exit(0)\n'
              'signal.signal(signal.SIGTERM, stop)\n'
              'while True: time.sleep(0.05)\n')

    def test_a_stop_signal_goes_to_the_rank_before_its_children(self):
        self.assertEqual(self.child_was_signalled_while_saving(), "False")
        until(lambda: (self.dir / "child").exists(), what="the SIGTERM for the rest of the group")

    def test_signal_group_sends_the_stop_signal_to_the_children_too(self):
        self.assertEqual(self.child_was_signalled_while_saving("--signal-group"), "True")

    def child_was_signalled_while_saving(self, *options):
        job = self.start("-n", 1, *options, self.script(self.WORKER))
        until(lambda: (self.dir / "ready").exists())
        time.sleep(0.2)
        job.send_signal(signal.SIGTERM)
        job.wait(10 * SLOWER)
        return (self.dir / "child-at-save").read_text()


class Suspending(JobTest):
    def states(self, pids):
        out = []
        for pid in pids:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                out.append(stat.read().rsplit(")", 1)[1].split()[0])
        return out

    def test_sigtstp_stops_the_workers_and_mgpu_run_and_sigcont_continues_them(self):
        # Not a loop of short commands: a shell that is stopped in vfork has state D, not T.
        job = self.start_sh(2, "echo $$ > pid.$RANK; exec sleep 300")
        pids = self.pids_from("pid.*", 2)
        job.send_signal(signal.SIGTSTP)
        until(lambda: self.states([job.pid, *pids]) == ["T"] * 3, what="all stopped")
        job.send_signal(signal.SIGCONT)
        until(lambda: "T" not in self.states([job.pid, *pids]), what="all going on")
        job.terminate()
        self.assertEqual(job.wait(10 * SLOWER), 143)

    def test_time_spent_stopped_does_not_count_towards_the_grace_period(self):
        job = self.start_sh(1, 'trap "" TERM; ' + WAIT, "--grace", "0.8")
        pids = self.pids_from("pid.*", 1)
        job.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        job.send_signal(signal.SIGTSTP)
        until(lambda: self.states([job.pid]) == ["T"])
        time.sleep(1.2)
        began = time.monotonic()
        job.send_signal(signal.SIGCONT)
        job.wait(20 * SLOWER)
        self.assertGreater(time.monotonic() - began, 0.4)
        self.assert_all_gone(pids)

    def test_a_rank_stopped_by_a_signal_is_reported_and_can_be_terminated(self):
        job = self.start_sh(2, '[ $RANK = 1 ] && kill -STOP $$; ' + WAIT)
        self.pids_from("pid.0", 1)
        line = job.stderr.readline().decode()
        self.assertRegex(line, r"rank 1 \(pid \d+\) was suspended by a signal; kill -CONT")
        job.terminate()
        self.assertEqual(job.wait(10 * SLOWER), 143)


if __name__ == "__main__":
    unittest.main()
