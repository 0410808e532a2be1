"""Rank 1 ends with status 7 in attempts 0 and 1, as soon as the group has formed and worked."""

import json
import os
import sys

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if dist.get_rank() == 1 and attempt < 2:
        os._exit(7)
    dist.barrier()  # here the others notice that it has ended
    print(json.dumps({"rank": dist.get_rank(), "attempt": attempt, "sum": int(ones)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
