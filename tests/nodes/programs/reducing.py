"""Sums over all ranks with gloo, step by step, until FOLDER/stop exists.

usage: reducing.py FOLDER. Each rank writes its sums to FOLDER/sums.RANK.ATTEMPT, one line per step,
and prints its last line as JSON. A rank that finds FOLDER/fail.RANK removes it and dies of
SIGKILL.
"""

import json
import os
import pathlib
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    result = {}
    with open(folder / f"sums.{rank}.{world}.{os.getpid()}", "a", encoding="ascii") as sums:
        for step in range(1_000_000):
            doom = folder / f"fail.{rank}"
            if doom.exists():
                doom.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            # The number that each rank adds, and whether it has seen FOLDER/stop.
            mine = torch.tensor([float(rank + 1), float(step), float((folder / "stop").exists())])
            dist.all_reduce(mine)
            result = {"rank": rank, "world": world, "attempt": attempt, "step": step,
                    "sum": mine[0].item(), "steps": mine[1].item(),
                    "host": os.uname().nodename, "master": os.environ["MASTER_ADDR"],
                    "leader": os.environ["MGPU_LEADER_ADDR"]}
            print(json.dumps(result), file=sums, flush=True)
            if mine[2].item() > 0:
                break
    dist.barrier()
    print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
