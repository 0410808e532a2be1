"""Kills a random rank of a training job again and again for some minutes, and prints how many distinct
steps a second the job completes, beside the same job without faults. Run by hand, with a Python that
has torch:

    cd tests/gpu; python -B goodput_bench.py [--model 7B] [--task lora] [--ranks 2] [--seconds 300]

`--ways` lists the runs, in order: `none` without faults, `restart` with a restart of all ranks after
each kill, `replace` with mgpu-run --replace-ranks. The other options are those of restart_bench.py.
"""

import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import restart_bench
from random_model import SHAPES, write_model
from restart_bench import NativeJob, wait_for


def distinct_steps(args, model, way):
    """Runs the job for so many seconds from its first step; returns its distinct steps a second, the
    number of kills, and the median time of a step."""
    args.replace = way == "replace"
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = pathlib.Path(folder)
        (folder / "model").symlink_to(model)
        job = NativeJob(args, folder)
        process = subprocess.Popen(job.command, env={**os.environ, **job.env}, stdout=sys.stderr)
        kills = 0
        try:
            wait_for(process, "a step", job.steps)
            began, first = job.steps()[-1][1], job.steps()[-1][0]
            seconds = args.seconds if way != "none" else min(args.seconds, args.healthy_seconds)
            while (now := time.time() - began) < seconds:
                if process.poll() is not None:
                    sys.exit(f"the job ended after {now:.0f} s")
                if way != "none" and now >= (kills + 1) * args.every:
                    os.kill(random.choice(job.pids()), signal.SIGKILL)
                    kills += 1
                time.sleep(0.05)
            steps = [(step, at) for step, at in job.steps() if step > first and at <= began + seconds]
        finally:
            process.terminate()
            process.wait(timeout=120)
    gaps = [after - before for (_, before), (_, after) in zip(steps, steps[1:])]
    return len({step for step, _ in steps}) / seconds, kills, statistics.median(gaps)


def main():
    parser = restart_bench.arguments()
    parser.set_defaults(model="7B", task="lora", batch=2, kills=100)
    parser.add_argument("--seconds", type=float, default=300, help="of a run [300]")
    parser.add_argument("--healthy-seconds", type=float, default=300,
                        help="at most this for the run without faults [300]")
    parser.add_argument("--every", type=float, default=60, help="seconds between two kills [60]")
    parser.add_argument("--ways", default="none,restart,replace")
    args = parser.parse_args()
    random.seed(1)
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
