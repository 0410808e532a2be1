"""Reads numbers through a DataLoader with worker processes and prints their sum.

"stopped": in the middle it waits for SIGTERM, reads the rest, saves the sum and ends with 0, as
programs do that save a checkpoint on SIGTERM. "crash": it ends there with status 3.
"""

import json
import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ITEMS = 64


class Numbers(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        return index, os.getpid()


def in_the_middle(mode, rank, stops, readers):
    with open(f"readers.{rank}.tmp", "w") as out:
        out.write(" ".join(map(str, readers)))
    os.rename(f"readers.{rank}.tmp", f"readers.{rank}")
    if mode == "crash":
        while not os.path.exists("go"):  # the test must first read our readers' pids
            time.sleep(0.01)
        os._exit(3)
    while not stops:
        time.sleep(0.01)


def main():
    mode = sys.argv[1]
    stops = []
    signal.signal(signal.SIGTERM, lambda *_: stops.append(True))
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    data = Numbers()
    loader = DataLoader(data, batch_size=4, num_workers=2, prefetch_factor=1,
                        sampler=DistributedSampler(data, world, rank, shuffle=True))
    total, readers = 0, set()
    for batch, (numbers, pids) in enumerate(loader):
        total += int(numbers.sum())
        readers |= set(pids.tolist())
        if mode != "all" and batch == 2:
            in_the_middle(mode, rank, stops, readers)
    print(json.dumps({"rank": rank, "sum": total, "readers": len(readers),
                      "self": os.getpid() in readers}), flush=True)


if __name__ == "__main__":
    main()
