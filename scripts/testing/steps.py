"""Steps of the test run: commands with a time limit, their outcomes, and work in the background."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORES = os.cpu_count() or 2
START = time.monotonic()
DEADLINE = START + 85 * 60  # of the whole run


class Outcome:
    """The result of a step: how many cases passed and failed, and what it printed."""

    def __init__(self, passed, failed, output=""):
        self.passed, self.failed, self.output = passed, failed, output
        self.seconds = self.cpu = 0.0

    @classmethod
    def of_check(cls, status, output):
        return cls(int(status == 0), int(status != 0), output)


class Spent(threading.local):
    """CPU seconds of the processes that this thread has run."""
    cpu = 0.0


SPENT = Spent()


def run(command, limit, environment=None, nice=0):
    """Runs a command in its own session and returns its exit status and its output.

    At the limit the whole process group is killed and the status is -SIGKILL. The output goes to a
    file: with a pipe, a process that a test leaves behind would block this one.
    """
    if nice:
        command = ["nice", "-n", str(nice), *command]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(environment or {})},
                                   start_new_session=True)
        with Limit(limit, process.pid) as time_limit:
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # Popen does not wait again
        SPENT.cpu += usage.ru_utime + usage.ru_stime
        return process.returncode, time_limit.text(output)


class Limit:
    """A context that kills a process group if it takes longer, or at the end of the whole run."""

    def __init__(self, seconds, group):
        self._seconds = max(1.0, min(seconds, DEADLINE - time.monotonic()))
        self._group, self._late = group, False
        self._timer = threading.Timer(self._seconds, self._kill)

    def _kill(self):
        self._late = True
        os.killpg(self._group, signal.SIGKILL)

    def __enter__(self):
        self._timer.start()
        return self

    def __exit__(self, *_):
        self._timer.cancel()

    def text(self, output):
        """What the group has written to this file."""
        output.seek(0)
        return output.read().decode(errors="replace") + (
            f"\nkilled: it took longer than {self._seconds:.0f} s\n" if self._late else "")


def check(command, limit=600):
    return Outcome.of_check(*run(command, limit))


def timed(step):
    """Runs a step and notes the seconds and the CPU seconds that it took."""
    start, SPENT.cpu = time.monotonic(), 0.0
    try:
        outcome = step()
    except Exception as error:  # a step that cannot run has failed; the others still run
        outcome = Outcome(0, 1, f"{type(error).__name__}: {error}\n")
    if outcome.seconds == 0:  # else it is that of work in the background, which has its own
        outcome.seconds, outcome.cpu = time.monotonic() - start, SPENT.cpu
    return outcome


class Background:
    """Work for idle cores: while the tests of a stage wait for timers and for each other, the
    builds of the stages to come run one after the other at the lowest priority."""

    def __init__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._futures = {}

    def start(self, name, step):
        if name not in self._futures:
            self._futures[name] = self._pool.submit(timed, step)

    def take(self, name):
        """The outcome of work that was started, else None; only the first call gets it."""
        future = self._futures.get(name)
        return future.result() if future else None
