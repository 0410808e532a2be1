"""What a job prints, read while it runs: its steps, its checkpoints and its starts."""

import math
import os
import re
import select
import threading
import time

STEP = re.compile(rb"step (\d+)/\d+\b.*\bloss ([\d.]+|nan|inf)")
STARTED = re.compile(rb"rank 0 of \d+ initialized")
RESUMED = re.compile(rb"resuming from .* at step (\d+)")
SAVED = re.compile(rb"saved .*?(\d+)$")
FLOOD = b"flood of output "


class Life:
    """One start of the training program: where it began, and its steps (step, time)."""

    def __init__(self):
        self.began_at = 0
        self.steps = []


class Progress:
    """Takes the lines of rank 0. Steps that were computed twice must have the same loss twice, up to
    this relative difference."""

    def __init__(self, rounding=0.0):
        self._rounding = rounding
        self.lives = []
        self.saved = 0
        self.changed = []  # steps whose loss was another one the second time
        self.missing = []  # steps that no line reported
        self.flood_bytes = 0
        self._losses = {}

    def take(self, line, now):
        if line.startswith(FLOOD):
            self.flood_bytes += len(line) + 1
        elif found := STEP.search(line):
            self._step(int(found[1]), found[2], now)
        elif STARTED.match(line):
            self.lives.append(Life())
        elif (found := RESUMED.match(line)) and self.lives:
            self.lives[-1].began_at = int(found[1])
        elif found := SAVED.match(line):
            self.saved = int(found[1])

    def _step(self, step, loss, now):
        if not self.lives:
            return
        life = self.lives[-1]
        if step != (life.steps[-1][0] if life.steps else life.began_at) + 1:
            self.missing.append(step)
        life.steps.append((step, now))
        before = self._losses.setdefault(step, loss)
        if before != loss and not math.isclose(float(before), float(loss), rel_tol=self._rounding):
            self.changed.append(step)


class Reader(threading.Thread):
    """Reads a pipe to its end and gives its lines to a Progress. It can be made to stop reading."""

    def __init__(self, pipe, progress):
        super().__init__(daemon=True)
        self._pipe, self._progress = pipe, progress
        self._reads = threading.Event()
        self._reads.set()
        self.start()

    def stop_reading(self):
        self._reads.clear()

    def read_on(self):
        self._reads.set()

    def run(self):
        rest = b""
        while True:
            # Waits without reading, so that nothing is taken after stop_reading().
            if not select.select([self._pipe], [], [], 0.2)[0]:
                continue
            self._reads.wait()
            chunk = os.read(self._pipe, 1 << 18)
            if not chunk:
                os.close(self._pipe)
                return
            *lines, rest = (rest + chunk).split(b"\n")
            now = time.monotonic()
            for line in lines:
                self._progress.take(line, now)
