"""What the launchers of a job hold: open descriptors and memory."""

import os
import pathlib
import time

SETTLE_S = 1.0  # a checkpoint opens a connection of each launcher for 40 ms, a slow network for longer


class Sizes:
    """The sizes of processes, by process id, as often as they are wanted."""

    def __init__(self):
        self.fewest = {}

    def of(self, pids):
        """For each process: open descriptors, private memory, and the highest value of its resident
        memory (KiB). How much of its code is resident depends on what it did last.

        Descriptors that are open for a moment do not count: they are counted again until there are
        not more than in an earlier call, and the fewest of SETTLE_S are taken."""
        until = time.monotonic() + SETTLE_S
        open_now = list(map(_descriptors, pids))
        while (any(count > self.fewest.get(pid, 0) for pid, count in zip(pids, open_now))
               and time.monotonic() < until):
            time.sleep(0.01)
            open_now = list(map(min, open_now, map(_descriptors, pids)))
        for pid, count in zip(pids, open_now):
            self.fewest[pid] = min(count, self.fewest.get(pid, count))
        return [{"fds": count, **_memory(pid)} for pid, count in zip(pids, open_now)]


def _descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def _memory(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    sizes = {line.split()[0]: line.split()[1:2] for line in status.splitlines() if line}
    return {"private": int(sizes["RssAnon:"][0]), "hwm": int(sizes["VmHWM:"][0])}
