"""A worker that only counts, in lock step with all ranks of its world, and keeps evidence of it.

usage: counting.py FOLDER [SECONDS]: a step takes about that long. All ranks share FOLDER.

Every rank writes each step to its own log, then all wait for each other in the store, then rank 0
commits the step to checkpoint.json; a new world continues there. A rank that finds a process of
another world alive writes a file violation.*. counts.py checks whether the logs agree.

    FOLDER/stop            once it exists, all ranks end with status 0 after the step
    FOLDER/fail.RANK       "exit N" or "kill N": that rank removes the file and ends that way
    FOLDER/broken.NAME     the ranks on the host NAME, or the rank NAME, end in every step as if
                           their GPU had failed
    COUNTING_ON_LOSS=fail  in the environment: a rank ends with status 1 when it loses the
                           store; by default it waits to be stopped
    COUNTING_STUBBORN=1    SIGTERM does not end it
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time

SET, GET, ADD, WAIT, VALIDATE, PING = 1, 3, 4, 6, 0, 13
VIOLATED, WAITED_IN_VAIN = 99, 98


def text(value):
    return struct.pack("=Q", len(value)) + value.encode()


class Store:
    """A client of c10d's store. Calls block until the answer arrives."""

    def __init__(self, host, port, limit=60):
        deadline = time.monotonic() + limit
        while True:
            try:
                self._socket = socket.create_connection((host, port), 10)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(struct.pack("=BI", VALIDATE, 0x3C85F7CE))
        (nonce,) = struct.unpack("=I", self._ask(struct.pack("=BI", PING, os.getpid()), 4))
        if nonce != os.getpid():
            raise ConnectionError("the store answered with another nonce")

    def _read(self, size):
        got = b""
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                raise ConnectionError("the store closed the connection")
            got += more
        return got

    def _ask(self, request, size):
        self._socket.sendall(request)
        return self._read(size)

    def set(self, key, value):
        self._socket.sendall(bytes([SET]) + text(key) + text(value))

    def add(self, key, number):
        return struct.unpack("=q", self._ask(bytes([ADD]) + text(key) + struct.pack("=q", number),
                                             8))[0]

    def get(self, key):
        """Waits until the key exists and returns its value."""
        self._ask(bytes([WAIT]) + struct.pack("=Q", 1) + text(key), 1)
        (size,) = struct.unpack("=Q", self._ask(bytes([GET]) + text(key), 8))
        return self._read(size).decode()


def clock():
    """CLOCK_MONOTONIC outside of time namespaces, which is the same for all workers."""
    return time.monotonic() - OFFSET


def clock_offset():
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as offsets:
            for line in offsets:
                name, seconds, nanoseconds = line.split()
                if name == "monotonic":
                    return int(seconds) + int(nanoseconds) / 1e9
    except FileNotFoundError:
        pass
    return 0.0


class Violation(Exception):
    """Something happened that must never happen."""


class Presence:
    """A locked file that names our world; the kernel unlocks it when this process dies."""

    def __init__(self, folder):
        self._folder = folder
        self._path = os.path.join(folder, f"alive.{os.urandom(8).hex()}")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._world = ""

    def belongs_to(self, world):
        self._world = world
        os.pwrite(self._file, f"{world} pid {os.getpid()}".encode(), 0)

    def look_for_others(self):
        """Fails if a living process has not named our world. Call it after all ranks of it have."""
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if not name.startswith("alive.") or path == self._path:
                continue
            try:
                other = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.unlink(path)  # it is not locked, so its process is dead
            except FileNotFoundError:
                pass
            except BlockingIOError:
                other_world = os.pread(other, 100, 0).decode()
                if not other_world.startswith(self._world):
                    raise Violation(f"alive at the same time: '{other_world}'") from None
            finally:
                os.close(other)


class Checkpoint:
    """The file that rank 0 commits: the next step, and which world did which steps."""

    def __init__(self, folder):
        self._path = os.path.join(folder, "checkpoint.json")
        self._lock = os.open(os.path.join(folder, "commit.lock"),
                             os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self):
        try:
            with open(self._path, encoding="ascii") as file:
                return json.load(file)
        except FileNotFoundError:
            return {"step": 0, "worlds": []}

    def commit(self, world, step):
        self._take_lock()
        saved = self.read()
        if saved["step"] != step:
            raise Violation(f"to commit step {step}, and the checkpoint is at {saved['step']}")
        if not saved["worlds"] or saved["worlds"][-1][0] != world:
            saved["worlds"].append([world, step, step])
        saved["worlds"][-1][2] = step
        saved["step"] = step + 1
        with open(self._path + ".new", "w", encoding="ascii") as file:
            json.dump(saved, file)
        os.rename(self._path + ".new", self._path)
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _take_lock(self):
        for _ in range(500):
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
        raise Violation("somebody else is in the middle of a commit")


class Worker:
    def __init__(self, folder, seconds):
        self.folder, self.seconds = folder, seconds
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.presence, self.checkpoint = Presence(folder), Checkpoint(folder)
        self._log = os.open(os.path.join(folder, f"log.{os.urandom(8).hex()}"),
                            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.note(host=os.uname().nodename, pid=os.getpid(), agent=os.getppid(), rank=self.rank,
                  size=self.size,
                  **{name.lower(): os.environ.get(name) for name in (
                      "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                      "MASTER_ADDR", "MASTER_PORT", "MGPU_LEADER_ADDR", "TORCHELASTIC_RESTART_COUNT",
                      "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID")})

    def note(self, **what):
        """Writes one line, atomically even if the process is killed."""
        os.write(self._log, (json.dumps({"t": clock(), **what}) + "\n").encode())

    def join(self):
        self.store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.store.add("joined", 1) > self.size:
            raise Violation("more ranks in the store than the world has: it is not a new one")
        if self.rank == 0:
            self.store.set("world", f"{os.urandom(8).hex()} {self.checkpoint.read()['step']}")
        self.world, step = self.store.get("world").split()
        self.presence.belongs_to(self.world)
        self.note(world=self.world, start=int(step))
        self.meet("here")
        return int(step)

    def meet(self, what):
        if self.store.add(what, 1) == self.size:
            self.store.set(what + " all", "")
        self.store.get(what + " all")

    def fail_if_broken(self):
        for name in (os.uname().nodename, self.rank):
            if os.path.exists(os.path.join(self.folder, f"broken.{name}")):
                print("RuntimeError: CUDA error: uncorrectable ECC error encountered",
                      file=sys.stderr, flush=True)
                os._exit(1)

    def fail_if_requested(self):
        path = os.path.join(self.folder, f"fail.{self.rank}")
        try:
            with open(path, encoding="ascii") as file:
                how, number = file.read().split()
            os.unlink(path)
        except FileNotFoundError:
            return
        if how == "kill":
            os.kill(os.getpid(), int(number))
        os._exit(int(number))

    def count(self, step):
        """Does one step; returns whether it was the last."""
        self.fail_if_requested()
        self.fail_if_broken()
        time.sleep(self.seconds)
        self.note(step=step)
        self.meet(f"done {step}")
        if self.rank == 0:
            self.presence.look_for_others()
            self.checkpoint.commit(self.world, step)
            stop = os.path.exists(os.path.join(self.folder, "stop"))
            self.store.set(f"saved {step}", "stop" if stop else "on")
        return self.store.get(f"saved {step}") == "stop"


def lost(error):
    print(f"rank {os.environ['RANK']} lost the store: {error}", file=sys.stderr, flush=True)
    if os.environ.get("COUNTING_ON_LOSS") == "fail":
        return 1
    signal.alarm(300)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(WAITED_IN_VAIN))
    while True:
        signal.pause()


def main():
    folder = sys.argv[1]
    if os.environ.get("COUNTING_STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = Worker(folder, float(sys.argv[2]) if len(sys.argv) > 2 else 0.03)
    try:
        step = worker.join()
        while not worker.count(step):
            step += 1
        worker.note(end=True)
        return 0
    except OSError as error:
        return lost(error)
    except Violation as violation:
        with open(os.path.join(folder, f"violation.{os.getpid()}"), "w", encoding="ascii") as file:
            file.write(f"rank {worker.rank} of {worker.size}: {violation}\n")
        return VIOLATED


OFFSET = clock_offset()
if __name__ == "__main__":
    sys.exit(main())
