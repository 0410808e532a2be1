"""Jobs whose launcher has no descriptor left: nothing stays behind, and the job goes on."""

import os
import resource
import signal
import subprocess
import unittest

from harness import PYTHON, SLOWER, JobTest, alive, children, comm, until

# Its children are in sessions of their own and hold more connections to the store than the
# launcher may have; the rank ends when the launcher has as many descriptors as it can.
CONNECTED = """
import os, select, signal, socket, sys
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
for child in range(4):
    if os.fork() == 0:
        os.setsid()
        held = []
        for _ in range(20):
            held.append(socket.socket())
            held[-1].setblocking(False)
            held[-1].connect_ex(address)
        for one in held:
            select.select([], [one], [], 5)
        with open(f"orphan.{attempt}.{child}", "w") as pid:
            pid.write(f"{os.getpid()}\\n")
        while True:
            signal.pause()
while (len([name for name in os.listdir(".") if name.startswith(f"orphan.{attempt}.")]) < 4
       or len(os.listdir(f"/proc/{os.getppid()}/fd")) < 48):
    select.select([], [], [], 0.02)
sys.exit(7)
"""
WAIT = ('echo $$ > pid.$TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; '
        'until [ -e go ]; do read x < tick; done; echo the end >&2; exit 7')


class NoDescriptors(JobTest):
    def limit(self, job, descriptors):
        subprocess.run(["prlimit", f"--pid={job.pid}", f"--nofile={descriptors}:"], check=True)

    def begin(self, *options):
        """Starts a job of one rank that waits, and returns it with the file of its stderr."""
        os.mkfifo(self.dir / "tick")
        err = self.dir / "err"
        with err.open("wb") as to:
            job = self.start_sh(1, WAIT, *options, stderr=to)
        self.wait_for_files("pid.0", 1)
        return job, err

    def let_go(self):
        (self.dir / "go").write_text("")
        (self.dir / "tick").write_text("now\n")

    def test_orphan_processes_that_hold_all_connections_are_killed(self):
        """They were not found, because looking for them takes descriptors, and outlived the job."""
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
        job = self.run_job("-n", 1, "--max-restarts", 1, "--no-python", PYTHON,
                           self.script(CONNECTED), preexec_fn=few)
        self.assertEqual(job.returncode, 7, job.err)
        orphans = [int(path.read_text()) for path in self.dir.glob("orphan.*")]
        self.assertEqual(len(orphans), 8, job.err)
        left = [pid for pid in orphans if alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [], job.err)
        self.assertEqual(job.report["exit_status"], 7)

    def test_an_attempt_that_cannot_be_started_is_followed_by_another(self):
        """The job ended with status 1, although it had restarts left."""
        job, err = self.begin("--max-restarts", 3, "--retry-delay", 5, "--report", "r.json")
        self.limit(job, 3)
        self.let_go()
        until(lambda: "Too many open files; restarting all ranks" in err.read_text(),
              what="a failed start")
        self.limit(job, 1000)
        self.assertEqual(job.wait(20 * SLOWER), 0, err.read_text())
        self.assertRegex(err.read_text(), "rank 0 failed: cannot .*: Too many open files; restarting")
        self.assertTrue((self.dir / "r.json").exists())

    def test_a_job_survives_a_guard_for_which_there_is_no_descriptor(self):
        """The exception was not expected, and ended the job."""
        job, err = self.begin("--max-restarts", 0)

        def guards():
            return [pid for pid in children(job.pid) if comm(pid) == "mg-guard"]
        guard, = until(guards, what="a guard")
        self.limit(job, 3)
        os.kill(guard, signal.SIGKILL)
        until(lambda: "cannot be started again" in err.read_text(), what="a note")
        self.limit(job, 1000)
        until(guards, what="another guard")
        self.let_go()
        self.assertEqual(job.wait(20 * SLOWER), 7, err.read_text())


if __name__ == "__main__":
    unittest.main()
