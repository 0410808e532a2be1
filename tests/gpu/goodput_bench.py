"""Kills a rank of a training job again and again for some minutes, and prints how many distinct steps a
second the job completes, beside the same job without faults. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B goodput_bench.py [--model 7B] [--task lora] [--ranks 2] [--seconds 300]

`--ways` lists the runs, in order: `none` without faults, `restart` with a restart of all ranks after
each kill, `replace` with mgpu-run --replace-ranks. Every second kill waits until a checkpoint is being
saved. For each kill one line tells when it came, whether the rank was replaced or all ranks restarted,
and when the next new step was done. The other options are those of restart_bench.py.
"""

import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import restart_bench
from random_model import SHAPES, write_model
from restart_bench import NativeJob, wait_for

LONGEST_WAIT = 30  # seconds for a checkpoint in which a rank is to be killed


class Kills:
    """Kills a rank every `every` seconds; the victims take turns, each once in a step and once in a save."""

    def __init__(self, job, args, began):
        self.job, self.every, self.ranks, self.began = job, args.every, args.ranks, began
        self.done = []      # time, rank, last step, name of the checkpoint that was being saved
        self.pids = []      # of all ranks, at each kill
        self.known = set()  # folders of saves that were begun before

    def saves(self):
        """The folders of checkpoints that are being written, or that an earlier kill left behind."""
        return {path.name for path in self.job.output.glob(".checkpoint-*.tmp-*")}

    def poll(self, now):
        """Kills if it is time."""
        late = now - (len(self.done) + 1) * self.every
        if late < 0:
            return
        new = self.saves() - self.known
        if len(self.done) % 2 == 1 and not new and late < LONGEST_WAIT:
            return
        rank = (self.ranks - 1 - (len(self.done) + 1) // 2) % self.ranks
        step = self.job.steps()[-1][0]
        new = self.saves() - self.known
        self.pids.append(self.job.pids())
        os.kill(self.pids[-1][rank], signal.SIGKILL)
        self.done.append((time.time(), rank, step, next(iter(new), "")))
        self.known |= self.saves()

    def report(self):
        steps, pids = self.job.steps(), [*self.pids, self.job.pids()]
        for number, (at, rank, step, save) in enumerate(self.done):
            end = self.done[number + 1][0] if number + 1 < len(self.done) else float("inf")
            changed = sum(old != new for old, new in zip(pids[number], pids[number + 1]))
            after = [(each, done) for each, done in steps if at < done < end]
            new = next((done - at for each, done in after if each > step + 1), float("nan"))
            save = save.removeprefix(".").partition(".tmp-")[0]
            print(f"  kill {number + 1}, after {at - self.began:.1f} s and step {step}, rank {rank}, "
                  + (f"while {save} was being saved: " if save else "no save under way: ")
                  + ("no new process yet", "replaced", "ALL RANKS RESTARTED")[min(changed, 2)]
                  + f", {max(0, step + 1 - min(after)[0]) if after else '?'} steps repeated, "
                  f"new steps after {new:.2f} s", flush=True)


def distinct_steps(args, model, way):
    """Runs the job for so many seconds from its first step; returns its distinct steps a second, the
    number of kills, and the median time of a step."""
    args.replace = way == "replace"
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = pathlib.Path(folder)
        (folder / "model").symlink_to(model)
        job = NativeJob(args, folder)
        process = subprocess.Popen(job.command, env={**os.environ, **job.env}, stdout=sys.stderr)
        try:
            wait_for(process, "a step", job.steps)
            first, began = job.steps()[-1]
            seconds = args.seconds if way != "none" else min(args.seconds, args.healthy_seconds)
            kills = Kills(job, args, began)
            while (now := time.time() - began) < seconds:
                if process.poll() is not None:
                    sys.exit(f"the job ended after {now:.0f} s")
                if way != "none":
                    kills.poll(now)
                time.sleep(0.01)
            steps = [(step, at) for step, at in job.steps() if step > first and at <= began + seconds]
            kills.report()
            report_saves(job)
        finally:
            process.terminate()
            process.wait(timeout=120)
    gaps = [after - before for (_, before), (_, after) in zip(steps, steps[1:])]
    return len({step for step, _ in steps}) / seconds, len(kills.done), statistics.median(gaps)


def report_saves(job):
    saves = [record for record in job.records() if record["event"] == "checkpoint"]
    if saves:
        stalls = [save["stalled_seconds"] for save in saves]
        print(f"  {len(saves)} checkpoints: training stood still {statistics.median(stalls):.3f} s (median), "
              f"{max(stalls):.3f} s (longest); complete after "
              f"{statistics.median(save['seconds'] for save in saves):.2f} s (median)", flush=True)


def main():
    parser = restart_bench.arguments()
    parser.set_defaults(model="7B", task="lora", batch=2, kills=100)
    parser.add_argument("--seconds", type=float, default=300, help="of a run [300]")
    parser.add_argument("--healthy-seconds", type=float, default=300,
                        help="at most this for the run without faults [300]")
    parser.add_argument("--every", type=float, default=60, help="seconds between two kills [60]")
    parser.add_argument("--ways", default="none,restart,replace")
    args = parser.parse_args()
    healthy = None
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        model = pathlib.Path(folder) / "model"
        write_model(model, SHAPES[args.model])
        os.sync()  # else the first checkpoints wait until the model's files are on the disk
        for way in args.ways.split(","):
            rate, kills, step = distinct_steps(args, model, way)
            healthy = rate if way == "none" else healthy
            share = f", {rate / healthy:.1%} of the run without faults" if kills and healthy else ""
            print(f"{args.model} {args.task}, {args.ranks} ranks, {way}: {rate:.3f} steps/s, "
                  f"{kills} kills{share}; median step {step * 1000:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
