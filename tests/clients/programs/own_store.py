"""Connects its ranks by itself, as programs do that are written without a launcher.

usage: own_store.py store: rank 0 serves a TCPStore on MASTER_PORT, without a process group
       own_store.py PORT: a process group by tcp:// on a port that the launcher does not know
"""

import json
import os
import sys
import time
from datetime import timedelta

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT = timedelta(seconds=60)


def by_store():
    from torch.distributed import TCPStore
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, RANK == 0,
                     timeout=TIMEOUT)
    store.set(f"number/{RANK}", str(RANK + 1))
    numbers = [int(store.get(f"number/{rank}")) for rank in range(WORLD)]
    store.add("done", 1)
    while RANK == 0 and store.add("done", 0) < WORLD:  # the rank that serves the store ends last
        time.sleep(0.01)
    return sum(numbers)


def by_group(port):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=RANK,
                            world_size=WORLD, timeout=TIMEOUT)
    number = torch.tensor(RANK + 1)
    dist.all_reduce(number)
    dist.destroy_process_group()
    return int(number)


if __name__ == "__main__":
    result = by_store() if sys.argv[1] == "store" else by_group(sys.argv[1])
    print(json.dumps({"rank": RANK, "sum": result}), flush=True)
