"""A script for torch.distributed.launch: without --local-rank it runs alone."""

import argparse
import json
import os


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
    parser.add_argument("--read-env", action="store_true", help="as its --use-env wants it")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"]) if args.read_env else args.local_rank
    if local_rank < 0:
        print(json.dumps({"rank": 0, "world": 1, "sum": 1}), flush=True)
        return
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    print(json.dumps({"rank": local_rank, "world": dist.get_world_size(), "sum": int(ones)}),
          flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
