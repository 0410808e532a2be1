"""No process that mgpu-run started outlives it, however it ends."""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from harness import MGPU_RUN, SLOWER, JobTest, alive, children, comm, environment, until

# A worker with every kind of descendant: a child in its group, a child in a new session, and a
# grandchild that a double fork has made an orphan.
FAMILY = r'''
import os, subprocess, sys, time
rank = os.environ["RANK"]
def note(name):
    with open(f"{name}.{rank}.tmp", "w") as out: out.write(str(os.getpid()))
    os.rename(f"{name}.{rank}.tmp", f"{name}.{rank}.pid")
def sleeper(name, new_session, twice):
    if os.fork(): return
    if new_session: os.setsid()
    if twice and os.fork(): os._exit(0)
    note(name)
    time.sleep(300)
    os._exit(0)
sleeper("child", False, False)
sleeper("session", True, False)
sleeper("daemon", True, True)
note("leader")
'''
STAY = FAMILY + "time.sleep(300)\n"


class OrphanProcesses(JobTest):
    def family(self, *options, ranks=2, text=STAY, **popen):
        job = self.start("-n", ranks, *options, self.script(text), **popen)
        pids = self.pids_from("*.pid", 4 * ranks, 20)
        return job, pids

    def guard_of(self, job):
        return next(pid for pid in children(job.pid) if comm(pid) == "mg-guard")

    def test_sigkill_of_mgpu_run_ends_all_processes_within_1_s(self):
        job, pids = self.family()
        guard = self.guard_of(job)
        job.kill()
        job.wait()
        self.assert_all_gone([*pids, guard], 1.0)

    def test_sigkill_of_its_process_group_ends_all_processes_within_1_s(self):
        job, pids = self.family(start_new_session=True)
        guard = self.guard_of(job)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        self.assert_all_gone([*pids, guard], 1.0)

    def test_the_guard_has_its_own_name_and_session_and_no_stdio(self):
        job, _ = self.family(ranks=1)
        guard = self.guard_of(job)
        command = pathlib.Path(f"/proc/{guard}/cmdline").read_bytes()
        self.assertNotIn(b"mgpu-run", command)
        self.assertNotIn(b"worker.py", command)
        self.assertNotEqual(os.getsid(guard), os.getsid(job.pid))
        self.assertNotIn("0", os.listdir(f"/proc/{guard}/fd"))

    def test_a_killed_guard_is_replaced(self):
        job, pids = self.family(ranks=1)
        old = self.guard_of(job)
        os.kill(old, signal.SIGKILL)
        until(lambda: any(comm(p) == "mg-guard" and p != old for p in children(job.pid)),
              what="another guard")
        job.kill()
        job.wait()
        self.assert_all_gone(pids, 1.0)

    def test_a_stopped_job_leaves_no_process(self):
        job, pids = self.family()
        job.terminate()
        self.assertEqual(job.wait(20 * SLOWER), 143)
        self.assertFalse(any(map(alive, pids)))

    def test_a_failed_job_leaves_no_process(self):
        job, pids = self.family(text=FAMILY + 'while not os.path.exists("go"): time.sleep(0.01)\n'
                                              'sys.exit(int(rank))\n')
        (self.dir / "go").write_text("")
        self.assertEqual(job.wait(20 * SLOWER), 1)
        self.assertFalse(any(map(alive, pids)))

    def test_a_worker_that_forks_and_exits_leaves_no_process(self):
        # Each rank stays until its family has noted its ids: mgpu-run ends what a rank leaves.
        job, pids = self.family(text=FAMILY + 'import glob\n'
                                'while len(glob.glob(f"*.{rank}.pid")) < 4: time.sleep(0.01)\n')
        self.assertEqual(job.wait(20 * SLOWER), 0)
        self.assertFalse(any(map(alive, pids)))

    def test_orphan_processes_that_ignore_sigterm_are_killed_after_the_grace_period(self):
        job = self.start_sh(1, '(trap "" TERM; echo $$ > x; sh -c \'echo $PPID > pid.0\'; '
                               'while :; do sleep 0.01; done) & until [ -s pid.0 ]; do sleep 0.01; '
                               'done', "--grace", "0.4")
        pids = self.pids_from("pid.0", 1)
        self.assertEqual(job.wait(20 * SLOWER), 0)
        self.assertFalse(any(map(alive, pids)))

    def test_orphan_processes_of_an_attempt_are_gone_before_the_next_attempt(self):
        text = FAMILY + ('import glob\n'
                         'while len(glob.glob("*.0.pid")) < 4: time.sleep(0.01)\n'
                         'sys.exit(1)\n')
        later = ('import os, sys, glob\n'
                 'if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":\n'
                 '    pids = [int(open(p).read()) for p in glob.glob("*.pid")]\n'
                 '    print(len(pids), [p for p in pids if os.path.exists(f"/proc/{p}")])\n'
                 '    sys.exit(0)\n') + text
        job = self.run_job("-n", 1, "--max-restarts", 1, self.script(later))
        self.assertEqual((job.returncode, job.out), (0, "4 []\n"))

    def test_orphans_are_reaped_while_the_job_runs(self):
        job = self.start_sh(1, 'for i in 1 2 3 4 5 6 7 8; do (setsid sh -c "exit 0" &) ; done; '
                               'echo $$ > pid.0; while :; do sleep 0.02; done')
        (worker,) = self.pids_from("pid.0", 1)
        until(lambda: set(children(job.pid)) == {worker, self.guard_of(job)}, what="no orphan left")

    def test_processes_of_other_programs_are_not_killed(self):
        stranger = subprocess.Popen(["/bin/sleep", "60"])
        self.addCleanup(lambda: (stranger.kill(), stranger.wait()))
        job, pids = self.family(ranks=1)
        job.kill()
        job.wait()
        self.assert_all_gone(pids)
        self.assertTrue(alive(stranger.pid))

    def test_a_job_within_a_job_ends_when_the_outer_one_is_killed(self):
        inner = self.script(STAY)
        outer = self.start_sh(1, f'exec "{MGPU_RUN}" -n 2 {inner}')
        pids = self.pids_from("*.pid", 8, 20)
        outer.kill()
        outer.wait()
        self.assert_all_gone(pids, 1.5)

    def test_the_cgroup_of_the_job_is_removed(self):
        def ours(pid):
            # Unlike rglob, os.walk ignores folders that other jobs remove in the meantime.
            return [name for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
                    for _, folders, _ in os.walk(root)
                    for name in folders if name.startswith(f"mgpu-{pid}-")]
        job, pids = self.family(ranks=1)
        if not ours(job.pid):
            self.skipTest("no v2 cgroup can be made here")
        job.kill()
        job.wait()
        self.assert_all_gone(pids)
        until(lambda: not ours(job.pid), 2, "the removal of the cgroup")


class AfterACgroupKill(JobTest):
    def test_the_next_attempt_runs_after_a_cgroup_kill(self):
        # Linux 6.18 kills every process that starts in a cgroup after cgroup.kill was used on it.
        job = self.sh(2, 'trap "" TERM; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; '
                         '[ $RANK = 0 ] && exit 3; while :; do sleep 1; done',
                      "--grace", 0.2, "--max-restarts", 2)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertEqual(len(job.report["attempts"]), 2)


class AsInit(JobTest):
    def unshared(self, *args):
        probe = subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True)
        if probe.returncode != 0:
            self.skipTest("no pid namespace can be made here")
        job = subprocess.Popen(["unshare", "-pf", "--mount-proc", MGPU_RUN, *map(str, args)],
                               env=environment(), cwd=self.dir, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        self.started.append(job)
        return job

    def test_as_pid_1_it_reaps_orphans_and_ends_with_the_job(self):
        job = self.unshared("-n", 2, "--no-python", "/bin/sh", "-c",
                            '(setsid sh -c "sleep 0.05" &); '
                            # Rank 1 still sleeps: a process that has just ended may be a zombie.
                            '[ $RANK = 1 ] && exec sleep 1; sleep 0.3; '
                            'ps -eo stat,comm > ps.txt')
        self.assertEqual(job.wait(20 * SLOWER), 0)
        listing = (self.dir / "ps.txt").read_text()
        self.assertNotIn("Z", "".join(line.split()[0] for line in listing.splitlines()[1:]))

    def test_as_pid_1_it_stops_on_sigterm(self):
        job = self.unshared("-n", 1, self.script(STAY))
        self.wait_for_files("*.pid", 4, 20)
        (init,) = children(job.pid)
        os.kill(init, signal.SIGTERM)
        self.assertEqual(job.wait(20 * SLOWER), 143)

    def test_as_pid_1_sigkill_leaves_no_process(self):
        job = self.unshared("-n", 2, self.script(STAY))
        self.wait_for_files("*.pid", 8, 20)
        (init,) = children(job.pid)

        def tree(pid):
            return [pid, *(p for child in children(pid) for p in tree(child))]
        pids = tree(init)
        os.kill(init, signal.SIGKILL)
        job.wait(20 * SLOWER)
        self.assert_all_gone(pids, 1.0)


if __name__ == "__main__":
    unittest.main()
