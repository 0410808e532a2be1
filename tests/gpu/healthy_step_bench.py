"""Trains under mgpu-run with everything that watches a job, and without mgpu-run, in turn, and prints what
the watching costs a step. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B healthy_step_bench.py [--model 7B] [--task lora] [--ranks 2] [--rounds 2]

| run | |
| --- | --- |
| watched | `mgpu-run --replace-ranks --max-restarts 3`: heartbeats, detection of hangs, monitoring of the GPUs, marks that confirm each step |
| bare | the ranks get the environment variables of a job by hand; nothing watches them, and rank 0 serves the store |

Exits with status 1 if the median step of the watched runs takes more than 0.5 % longer. The other options are
those of restart_bench.py.
"""

import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

import restart_bench
from random_model import SHAPES, write_model
from restart_bench import BIN, NativeJob, lines_of

LONGEST_SHARE = 0.005
WARM = 20  # steps that are not counted


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run_bare(ranks, recipe, env):
    common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": free_port()}
    processes = [subprocess.Popen([BIN / "mgpu-train", recipe], stdout=sys.stderr, env=env | {
        name: str(value) for name, value in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()})
        for rank in range(ranks)]
    return max(abs(process.wait()) for process in processes)


def median_step(args, folder, number, watched):
    """Of a run, in seconds, and the process's own mean over all counted steps."""
    args.replace = watched
    own = folder / f"{number}-{'watched' if watched else 'bare'}"
    own.mkdir()
    (own / "model").symlink_to(folder / "model")
    job = NativeJob(args, own)
    env = {"OMP_NUM_THREADS": "1", **os.environ, **job.env}  # mgpu-run would set it
    if watched:
        status = subprocess.run(job.command, env=env, stdout=sys.stderr).returncode
    else:
        status = run_bare(args.ranks, job.command[-1], env)
    if status != 0:
        sys.exit(f"a run ended with status {status}")
    steps = [record["seconds"] for record in lines_of(job.output / "metrics.jsonl")
             if record["event"] == "train" and record["step"] > WARM]
    return statistics.median(steps), statistics.mean(steps)


def main():
    parser = restart_bench.arguments()
    parser.set_defaults(model="7B", task="lora", batch=2)
    parser.add_argument("--steps", type=int, default=150, help="of a run, after the first 20 [150]")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each kind, in turn [2]")
    args = parser.parse_args()
    args.set = ["zero_stage=0", 'save_strategy="no"', "save_final_model=false",
                f"max_steps={WARM + args.steps}"] + args.set
    times = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = pathlib.Path(folder)
        write_model(folder / "model", SHAPES[args.model])
        os.sync()
        for number in range(args.rounds):
            for watched in (False, True):
                median, mean = median_step(args, folder, number, watched)
                times[watched].append(median)
                print(f"round {number + 1}, {'watched' if watched else 'bare'}: median step "
                      f"{1e3 * median:.2f} ms, mean {1e3 * mean:.2f} ms", flush=True)
    bare, watched = (statistics.median(times[kind]) for kind in (False, True))
    share = watched / bare - 1
    print(f"{args.model} {args.task}, {args.ranks} ranks: watched {1e3 * watched:.2f} ms, bare "
          f"{1e3 * bare:.2f} ms: {100 * share:+.2f} % (bar {100 * LONGEST_SHARE:.1f} %)")
    return share > LONGEST_SHARE


if __name__ == "__main__":
    sys.exit(main())
