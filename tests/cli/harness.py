"""Shared by the command-line tests: starting the real mgpu-run and waiting for its effects."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MGPU_RUN = os.environ.get("MGPU_RUN") or str(
    pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / "mgpu-run")
SLOWER = 10 if os.environ.get("MGPU_SANITIZED") else 1

# Jobs inherit ignored signals. Undo those that nohup or a background shell has set to be ignored.
for _signo in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP,
               signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(_signo) == signal.SIG_IGN:
        signal.signal(_signo, signal.SIG_DFL)


def environment(**changes):
    """Our environment without variables of a launcher or of the user, plus the changes. Restarts are immediate."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("MGPU_", "PET_", "TORCHELASTIC_"))}
    env["MGPU_RETRY_DELAY"] = "0"
    env.update(changes)
    return env


def until(condition, limit=10.0, what="the condition"):
    """Waits until the condition is true and returns its value."""
    deadline = time.monotonic() + limit * SLOWER
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {limit * SLOWER:.0f} s waiting for {what}")
        time.sleep(0.005)


def alive(pid):
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
            return [int(word) for word in listed.read().split()]
    except FileNotFoundError:
        return []


def comm(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class JobTest(unittest.TestCase):
    """Runs jobs in a folder of its own. Jobs that a failing test leaves running are killed."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mgpu-cli-"))
        self.started = []
        self.addCleanup(self._clean_up)

    def _clean_up(self):
        for job in self.started:
            if job.poll() is None:
                job.kill()
            job.wait()
            for stream in (job.stdout, job.stderr, job.stdin):
                if stream:
                    stream.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def write(self, name, text, mode=0o644):
        path = self.dir / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def script(self, text, name="worker.py"):
        return self.write(name, text)

    def start(self, *args, env=None, program=MGPU_RUN, **popen):
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("cwd", self.dir)
        # The logs of a failed job are kept in TMPDIR: they go with the test's folder.
        job = subprocess.Popen([program, *map(str, args)],
                               env=environment(**{"TMPDIR": str(self.dir), **(env or {})}), **popen)
        self.started.append(job)
        return job

    def run_job(self, *args, limit=60, env=None, **popen):
        """Runs a job to its end; the result has .returncode, .out, .err (text) and .report."""
        report = self.dir / "report.json"
        report.unlink(missing_ok=True)
        job = self.start("--report", report, *args, env=env, **popen)
        out, err = job.communicate(timeout=limit * SLOWER)
        job.out = (out or b"").decode(errors="replace")
        job.err = (err or b"").decode(errors="replace")
        job.report = json.loads(report.read_text()) if report.exists() else None
        return job

    def sh(self, nproc, text, *options, **kwargs):
        """Runs a job whose workers are sh scripts."""
        return self.run_job("-n", nproc, *options, "--no-python", "/bin/sh", "-c", text, **kwargs)

    def start_sh(self, nproc, text, *options, **kwargs):
        return self.start("-n", nproc, *options, "--no-python", "/bin/sh", "-c", text, **kwargs)

    def wait_for_files(self, pattern, count, limit=10):
        return until(lambda: (found := sorted(self.dir.glob(pattern))) and len(found) >= count
                     and all(p.stat().st_size for p in found) and found, limit,
                     f"{count} files {pattern}")

    def pids_from(self, pattern, count, limit=10):
        return [int(p.read_text().split()[0]) for p in self.wait_for_files(pattern, count, limit)]

    def assert_all_gone(self, pids, limit=1.0):
        until(lambda: not any(map(alive, pids)), limit,
              f"the end of {[p for p in pids if alive(p)]}")


PYTHON = sys.executable
SIGNALS = signal.Signals
