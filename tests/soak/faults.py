"""The faults that a soak injects. Each is a class with the kind of cause that the launcher must
report for it; `kind` None: the job must go on without a failure.

inject() makes the fault happen to a rank. over() is called until it returns true, while the job
recovers: it undoes what is to be undone. end() undoes the rest in any case.
"""

import errno
import os
import signal
import threading
import time

import memory_limit
import netns
from harness import alive
from progress import FLOOD

FLOOD_BYTES = 100_000_000
# At most as long as what a pipe takes as a whole: lines of the rank itself stay whole too.
FLOOD_BLOCK = (FLOOD + b"x" * (63 - len(FLOOD)) + b"\n") * 64


class Fault:
    kind = None
    jobs = ("quickstart", "pytorch")
    fewest_nodes = 1
    of_one_rank = True  # whether the cause has a rank
    seconds_before = 0  # of training before it

    def __init__(self, job, rank, random):
        self.job, self.rank, self.random = job, rank, random

    @staticmethod
    def reason_to_skip():
        """Why this fault cannot be injected here; None if it can."""
        return None

    def has_come(self):
        """Whether this is a good moment for it."""
        steps = self.job.progress.lives[-1].steps
        return steps and steps[-1][1] - steps[0][1] >= self.seconds_before

    def pid(self):
        return self.job.workers()[self.rank].pid

    def over(self):
        return True

    def end(self):
        pass


class Kill(Fault):
    """kill -9 of a rank."""

    kind, signo = "killed", signal.SIGKILL

    def inject(self):
        os.kill(self.pid(), self.signo)


class Terminate(Kill):
    """SIGTERM to one rank, not by the launcher."""

    signo = signal.SIGTERM


class Crash(Kill):
    """SIGSEGV of a rank."""

    kind, signo = "signal", signal.SIGSEGV


class Raise(Fault):
    """A Python exception in a rank."""

    kind, jobs = "python_exception", ("pytorch",)

    def inject(self):
        (self.job.disk / f"raise.{self.rank}").touch()


class LoaderDeath(Fault):
    """The exit of a data loader's process, which its rank reports as an exception."""

    kind, jobs = "python_exception", ("pytorch",)

    def inject(self):
        (self.job.disk / f"loader.{self.rank}").touch()


class Stop(Fault):
    """SIGSTOP of a rank that trains: --hang-timeout allows ten times as long for a start and for a
    checkpoint."""

    kind = "hang"
    seconds_before = 2.5  # ranks of mgpu-train do not report every step
    patience = 4  # seconds that the rank stays stopped if the launcher does not detect hangs

    def has_come(self):
        return super().has_come() and self.job.progress.lives[-1].steps[-1][0] % 5 in (1, 2)

    def inject(self):
        self.stopped = self.pid()
        self.resume_at = time.monotonic() + self.patience
        os.kill(self.stopped, signal.SIGSTOP)

    def over(self):
        if self.job.setup.hang_timeout or time.monotonic() < self.resume_at:
            return not alive(self.stopped)
        self.end()
        return True

    def end(self):
        netns.send(self.stopped, signal.SIGCONT)


class OutOfMemory(Fault):
    """The kernel kills a rank because the memory limit of its node is reached."""

    kind = "host_oom"
    reason_to_skip = staticmethod(memory_limit.reason_to_skip)

    def inject(self):
        node = self.rank * self.job.setup.nodes // self.job.ranks
        self.job.limits[node].kill_for_memory(self.pid(), 30)


class FullDisk(Fault):
    """No space is left where the checkpoints are, until a rank has failed."""

    kind, of_one_rank = "disk_full", False

    @staticmethod
    def reason_to_skip():
        if os.environ.get("SOAK_DISK"):
            return None
        return "no small disk can be mounted here"

    def inject(self):
        self.pids = [worker.pid for worker in self.job.workers().values()]
        self.filler = self.job.disk / "filler"
        with open(self.filler, "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 16))
            except OSError as why:
                if why.errno != errno.ENOSPC:
                    raise

    def over(self):
        if all(map(alive, self.pids)):
            return False
        self.end()
        return True

    def end(self):
        self.filler.unlink(missing_ok=True)


class Flood(Fault):
    """100 MB of lines from a rank, as fast as the launcher reads them."""

    total = FLOOD_BYTES

    def inject(self):
        self._bytes_before = self.job.progress.flood_bytes
        # The rank's own stdout, opened once more.
        self.stdout = open(f"/proc/{self.pid()}/fd/1", "wb", buffering=0)
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self):
        with self.stdout:
            for _ in range(self.total // len(FLOOD_BLOCK)):
                try:
                    self.stdout.write(FLOOD_BLOCK)
                except OSError:  # the launcher has ended
                    return

    def over(self):
        return not self.thread.is_alive()

    def lines_lost(self):
        """Lines of the flood that were not read. Only the output of node 0 is read."""
        if self.rank * self.job.setup.nodes // self.job.ranks:
            return 0
        wanted = self.total // len(FLOOD_BLOCK) * len(FLOOD_BLOCK)
        return (wanted - self.job.progress.flood_bytes + self._bytes_before) // 64


class StalledLog(Flood):
    """What reads the launcher's stdout stops doing so for seconds, while a rank writes 2 MB."""

    total = 2_000_000

    def inject(self):
        self.read_on_at = time.monotonic() + self.random.uniform(0.5, 3)
        self.job.readers[0].stop_reading()
        super().inject()

    def over(self):
        if time.monotonic() < self.read_on_at:
            return False
        self.end()
        return super().over()

    def end(self):
        self.job.readers[0].read_on()


class SlowNetwork(Fault):
    """A node's packets are late or lost for seconds."""

    fewest_nodes = 2

    @staticmethod
    def reason_to_skip():
        return netns.reason_to_skip()

    def inject(self):
        self.heal_at = time.monotonic() + self.random.uniform(0.5, 3)
        self.host = self.job.net[self.rank * self.job.setup.nodes // self.job.ranks]
        if netns.can_delay() and self.random.random() < 0.5:
            self.host.delay(self.random.uniform(0.02, 0.2))
        else:
            self.host.lose(self.random.uniform(0.02, 0.2))

    def over(self):
        if time.monotonic() < self.heal_at:
            return False
        self.end()
        return True

    def end(self):
        self.host.heal()


FAULTS = {"kill": Kill, "terminate": Terminate, "crash": Crash, "exception": Raise,
          "loader death": LoaderDeath, "stop": Stop, "out of memory": OutOfMemory,
          "full disk": FullDisk, "flood": Flood, "stalled log": StalledLog,
          "slow network": SlowNetwork}


def names_for(setup):
    """The faults that fit the setup."""
    return [name for name, fault in FAULTS.items()
            if setup.job in fault.jobs and setup.nodes >= fault.fewest_nodes]


def skipped(names):
    """Which of these faults cannot be injected here, and why."""
    reasons = {name: FAULTS[name].reason_to_skip() for name in names}
    return {name: reason for name, reason in reasons.items() if reason}
