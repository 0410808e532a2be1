#!/usr/bin/env python3
"""Injects random faults into a job, one after another, and judges how it recovers from each.

The seed and the number of a fault select it. Every fault that has been judged is one line of JSON
in the state file: a soak that is started again with the same file goes on after them. At the end it
prints tables in Markdown; the exit status is 1 if an acceptance rule is broken.
docs/benchmarks/soak.md explains the rules.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "nodes")]
import summary  # noqa: E402
from faults import FAULTS, names_for, skipped  # noqa: E402
from harness import MGPU_RUN, alive, until  # noqa: E402
from jobs import ROOT, Job  # noqa: E402

DISK_BYTES = 96 << 20
# Seconds for anything that takes a few; a busy machine may stand still for many. Ranks that torchrun
# starts again may wait for ever for addresses of the attempt before.
LIMIT = {"mgpu-run": 240, "torchrun": 60}


@dataclasses.dataclass
class Setup:
    """What is run; the same for all faults of a soak but the launcher."""

    job: str
    nodes: int
    launcher: str
    seed: int
    disk: pathlib.Path
    hang_timeout: float = 0
    device: str = "cpu"


def chosen(setup, number, names):
    """Fault `number` of the soak: its name, its rank and the source of its other choices. Every
    name comes once before one comes again."""
    deck = random.Random(f"{setup.seed}/{number // len(names)}").sample(names, len(names))
    source = random.Random(f"{setup.seed}/{number}/{setup.job}/{setup.nodes}")
    ranks = 2 if setup.nodes == 1 else setup.nodes
    return deck[number % len(names)], source.randrange(ranks), source


class JobEnded(Exception):
    """The whole job has ended although it has restarts left."""


class Cycle:
    """One fault: from a job that trains to a job that trains again."""

    def __init__(self, job, number, names):
        self.job = job
        self.name, self.rank, self.random = chosen(job.setup, number, names)
        self.fault = FAULTS[self.name](job, self.rank, self.random)
        self.row = {"number": number, "fault": self.name, "rank": self.rank,
                    "expected": self.fault.kind or "none"}

    def wait(self, condition, what):
        def holds():
            if not self.job.running():
                raise JobEnded(what)
            time.sleep(0.01)
            return condition()
        return until(holds, LIMIT[self.job.setup.launcher], what)

    def run(self):
        """Returns the row, which lacks the cause: that is in the job's report at its end."""
        progress = self.job.progress
        steps = self.random.randint(3, 12)
        self.wait(lambda: progress.lives and len(progress.lives[-1].steps) >= steps
                  and progress.saved and len(self.job.workers()) == self.job.ranks, "steps")
        time.sleep(self.random.uniform(0, 0.3))
        self.wait(self.fault.has_come, f"a moment for: {self.name}")
        lives, saved = len(progress.lives), progress.saved
        changed, missing = len(progress.changed), len(progress.missing)
        before = self.job.workers()
        self.row["restarts"] = max(worker.restarts for worker in before.values())
        began = time.monotonic()
        try:
            self.fault.inject()
            injected = began if self.fault.kind else time.monotonic()
            again = self._recovered(lives)
        finally:
            self.fault.end()
        self.row["seconds"] = round(again - (began if self.fault.kind else injected), 3)
        self._judge(lives, saved, changed, missing)
        return self.row

    def _recovered(self, lives):
        """Waits until the job trains again; the time of the first step after the fault."""
        progress = self.job.progress
        if self.fault.kind is None:
            self.wait(self.fault.over, f"the end of: {self.name}")
        else:
            self.wait(lambda: self.fault.over() or len(progress.lives) > lives, self.name)
        over = time.monotonic()

        def trains():
            if not self.fault.over():
                return None
            restarted = len(progress.lives) > lives
            # A detected stop that ended nothing, or a fault that must end nothing.
            lasting = self.fault.kind is None or (self.name == "stop"
                                                  and not self.job.setup.hang_timeout)
            if not restarted and not lasting:
                return None
            after = [when for _, when in progress.lives[-1].steps if restarted or when > over]
            return after[1:] and after[0]
        return self.wait(trains, f"training after: {self.name}")

    def _judge(self, lives, saved, changed, missing):
        progress = self.job.progress
        new = progress.lives[lives:]
        self.row["lives"] = len(new)
        self.row["lost_steps"] = max([0, *(saved - life.began_at for life in new if life.steps)])
        self.row["changed_losses"] = len(progress.changed) - changed
        self.row["missing_steps"] = len(progress.missing) - missing
        if hasattr(self.fault, "lines_lost"):
            # What was written last may still be on its way.
            try:
                until(lambda: self.fault.lines_lost() <= 0, 10)
            except AssertionError:
                pass
            self.row["lost_lines"] = self.fault.lines_lost()
        self.row["orphans"] = len(self._orphans())
        self.row["sizes"] = self.job.sizes()

    def _orphans(self):
        """Processes of earlier attempts."""
        now = max((worker.restarts for worker in self.job.workers().values()), default=0)
        return [process for process in self.job.processes()
                if 0 <= process.restarts < now and alive(process.pid)]


def run_job(setup, numbers, names, folder, write):
    """Runs a job through these faults and writes their rows. Returns the numbers not judged."""
    job = Job(setup, folder)
    rows, left, trouble = [], list(numbers), ""
    try:
        for number in numbers:
            cycle = Cycle(job, number, names)
            try:
                rows.append(cycle.run())
            except (JobEnded, AssertionError) as why:
                # The job is lost: this counts against the fault that was being judged.
                rows.append({**cycle.row, "trouble": f"{type(why).__name__}: {why}"})
                trouble = job.errors()
            left.remove(number)
            print(f"{setup.job} {setup.nodes} {setup.launcher}: {json.dumps(rows[-1])}",
                  file=sys.stderr, flush=True)
            if trouble:
                break
    finally:
        orphans = job.stop() if not trouble else []
        failures = job.failures()
        job.end()
        for row in rows:
            row["orphans"] = row.get("orphans", 0) + (len(orphans) if row is rows[-1] else 0)
            write({**summary.with_cause(row, failures), "job": setup.job, "nodes": setup.nodes,
                   "launcher": setup.launcher, "device": setup.device, "seed": setup.seed,
                   "run": job.mark})
    if trouble:
        print(trouble, file=sys.stderr, flush=True)
    return left


def read_rows(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=30, help="how many in all [30]")
    parser.add_argument("--job", choices=["quickstart", "pytorch"], default="quickstart")
    parser.add_argument("--nodes", type=int, choices=[1, 4], default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu",
                        help="where the ranks compute; they may share a GPU [cpu]")
    parser.add_argument("--launcher", default="mgpu-run",
                        help="mgpu-run, torchrun, or both with a comma between them [mgpu-run]")
    parser.add_argument("--faults-per-job", type=int, default=250,
                        help="after so many faults a new job begins [250]")
    parser.add_argument("--only", default="", help="only these faults, with commas between them")
    parser.add_argument("--hang-timeout", type=float, default=0,
                        help="given to mgpu-run; without that option no rank is stopped. "
                        "0: hangs go undetected")
    parser.add_argument("--causes-not-judged", default="",
                        help="faults whose cause is shown and breaks no rule, as in --only")
    parser.add_argument("--state", type=pathlib.Path, required=True)
    return parser.parse_args()


def with_small_disk():
    """Starts this program again with a small disk of its own, where one can be mounted. It is gone
    when the program has ended, however it ends."""
    folder = tempfile.mkdtemp(prefix="mgpu-soak-")
    command = (f"mount -t tmpfs -o size={DISK_BYTES} tmpfs '{folder}' && SOAK_DISK='{folder}' "
               'exec "$@"')
    can = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", folder],
                         stderr=subprocess.DEVNULL, check=False).returncode == 0
    try:
        if can:
            done = subprocess.Popen(["unshare", "--mount", "sh", "-c", command, "sh",
                                     sys.executable, "-B", *sys.argv])
        else:
            done = subprocess.Popen([sys.executable, "-B", *sys.argv],
                                    env={**os.environ, "SOAK_FOLDER": folder})
        for signo in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signo, lambda number, _: done.send_signal(number))
        return done.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def has_hang_timeout():
    shown = subprocess.run([MGPU_RUN, "--help"], capture_output=True, text=True, check=False)
    return "--hang-timeout" in shown.stdout


def main():
    args = arguments()
    disk = os.environ.get("SOAK_DISK") or os.environ.get("SOAK_FOLDER")
    if not disk:
        return with_small_disk()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    launchers = args.launcher.split(",")
    hang = args.hang_timeout if has_hang_timeout() else 0
    setups = [Setup(args.job, args.nodes, launcher, args.seed, pathlib.Path(disk),
                    hang if launcher == "mgpu-run" else 0, args.device) for launcher in launchers]
    names = [name for name in names_for(setups[0])
             if not args.only or name in args.only.split(",")]
    reasons = skipped(names)
    if args.hang_timeout and not hang and "stop" in names:
        reasons["stop"] = "this mgpu-run has no --hang-timeout"
    for name, why in reasons.items():
        print(f"skipped: {name}: {why}", flush=True)
        names.remove(name)

    def write(row):
        with open(args.state, "a", encoding="utf-8") as state:
            state.write(json.dumps(row) + "\n")

    while True:
        rows = read_rows(args.state)
        left = {setup.launcher: sorted(set(range(args.faults)) - {
            row["number"] for row in rows if row["launcher"] == setup.launcher})
            for setup in setups}
        # The launchers take turns: the one that has waited longest is next.
        waiting = [setup for setup in setups if left[setup.launcher]]
        if not waiting:
            break
        turns = [row["launcher"] for row in reversed(rows)] + launchers
        setup = max(waiting, key=lambda setup: turns.index(setup.launcher))
        with tempfile.TemporaryDirectory(prefix="mgpu-soak-job-") as folder:
            run_job(setup, left[setup.launcher][:args.faults_per_job], names,
                    pathlib.Path(folder) / "job", write)
    print(summary.tables(rows))
    broken = summary.broken_rules([row for row in rows if row["launcher"] == "mgpu-run"],
                                  args.causes_not_judged.split(","))
    for rule in broken:
        print(f"BROKEN {rule}")
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # what was judged is in the state file
