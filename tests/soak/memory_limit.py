"""A cgroup with a memory limit for the processes of one node."""

import os
import pathlib
import subprocess
import sys
import time

FREE = 64 << 20  # bytes that a node may still take when its memory is made to run out
# Takes memory in small pieces until the process in argv[1] is gone. If the kernel has to kill a
# second process while that one is ending, it is this one: its score must be above that of another
# rank, whose libraries may be charged to another group and so not be part of the limit. It must
# stay below that of the process (1000) even when this one has become larger, in place of the page
# cache.
EATER = """
import os, sys, time
open("/proc/self/oom_score_adj", "w").write("800")
taken = []
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
while lives(sys.argv[1]) and len(taken) < 4096:
    taken.append(b"x" * (1 << 20))
    time.sleep(0.0005)
"""


def _tree():
    """The mount of the memory controller, whether it is of version 1, and our own group there."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    v1 = [m[1] for m in mounts if m[2] == "cgroup" and "memory" in m[3].split(",")]
    v2 = [m[1] for m in mounts if m[2] == "cgroup2"]
    if not v1 and not v2:
        raise OSError("no cgroup tree is mounted")
    root = pathlib.Path((v1 or v2)[0])
    inside = group_of("self", bool(v1))
    # In a container the path may be the one on the host, of which the mount shows only the end.
    return (root / inside if (root / inside).is_dir() else root), bool(v1), root


def group_of(pid, v1):
    """The path of a process's memory cgroup below the mount."""
    groups = dict(line.split(":", 2)[1:] for line in
                  pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return groups.get("memory" if v1 else "", "/").lstrip("/")


class MemoryLimit:
    """A memory cgroup below our own. OSError if it cannot be created. close() removes it."""

    def __init__(self, name):
        parent, self._v1, self._root = _tree()
        self.path = parent / name
        self.path.mkdir()
        limit, usage = (("memory.limit_in_bytes", "memory.usage_in_bytes") if self._v1 else
                        ("memory.max", "memory.current"))
        self._limit, self._usage = self.path / limit, self.path / usage
        if not self._limit.exists():
            self.path.rmdir()
            raise OSError(f"{self.path} has no {limit}: the memory controller is not ours to use")

    def enter(self):
        """The words before a command that run it in this group."""
        return ["sh", "-c", f"echo $$ > '{self.path}/cgroup.procs' && exec \"$@\"", "sh"]

    def kill_for_memory(self, pid, limit_s):
        """Lets the memory of the group run out, so that the kernel kills the process. If it kills
        the eater instead, the next one begins with less page cache to grow into."""
        pathlib.Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        group = self._root / group_of(pid, self._v1)
        if not group.is_dir():
            group = self.path
        command = ["sh", "-c", f"echo $$ > '{group}/cgroup.procs' && exec \"$@\"", "sh",
                   sys.executable, "-S", "-E", "-c", EATER, str(pid)]
        deadline = time.monotonic() + limit_s
        status = None
        try:
            while status != 0:
                self._limit.write_text(str(int(self._usage.read_text()) + FREE))
                status = _run(command, deadline - time.monotonic())
        finally:
            self._limit.write_text("-1" if self._v1 else "max")

    def close(self):
        deadline = time.monotonic() + 10
        while self.path.exists() and time.monotonic() < deadline:
            for group in sorted(filter(pathlib.Path.is_dir, self.path.rglob("*")), reverse=True):
                _remove(group)
            _remove(self.path)
            time.sleep(0.02)


def _run(command, limit_s):
    """Returns the command's exit status."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        return process.wait(limit_s)
    finally:
        process.kill()
        process.wait()


def _remove(group):
    try:
        os.rmdir(group)
    except OSError:  # busy until its last process has been reaped
        pass


def reason_to_skip():
    """Why no memory can be made to run out here; None if it can."""
    try:
        MemoryLimit(f"mgpu-soak-probe-{os.getpid()}").close()
    except OSError as why:
        return f"no memory cgroup can be made here: {why}"
    return None
