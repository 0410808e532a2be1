"""DDP training without end that saves every few steps and continues there when it starts again.

usage: ddp_training.py FOLDER. It prints its steps in the form of mgpu-train's. A file
FOLDER/raise.RANK makes that rank raise an exception in its next step, a file FOLDER/loader.RANK
ends the process of its data loader.
"""

import json
import os
import pathlib
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SAVE_EVERY = 5
SECONDS_A_STEP = 0.02
ROWS = 1 << 30


class Sums(Dataset):
    """Row I is the same in every attempt."""

    def __init__(self, first_row, ranks, order):
        self.first_row, self.ranks, self.order = first_row, ranks, order

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        if self.order.exists():
            self.order.unlink()
            os._exit(1)
        row = torch.Generator().manual_seed(self.first_row + index * self.ranks)
        x = torch.randn(16, 8, generator=row)
        return x, x.sum(1, keepdim=True)


def save(path, state):
    torch.save(state, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


def say(line):
    """Prints a line with a single write: other processes write to the same pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Heartbeats:
    """Reports steps on the launcher's worker socket, if it has one."""

    def __init__(self, rank):
        address = os.environ.get("MGPU_WORKER_SOCKET")
        self._launcher = socket.socket(socket.AF_UNIX) if address else None
        if address:
            self._launcher.connect(address.replace("@", "\0", 1))
            self._send(rank=rank)

    def step(self, number):
        if self._launcher:
            self._send(step=number)

    def _send(self, **words):
        self._launcher.sendall(json.dumps(words).encode() + b"\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    first = rank == 0
    heartbeats = Heartbeats(rank)
    if first:
        say(f"rank 0 of {ranks} initialized")

    device = torch.device(os.environ.get("SOAK_DEVICE", "cpu"))
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    model.to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    checkpoint, step = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    if first:
        say(f"resuming from {checkpoint} at step {step} of {ROWS}")

    order = folder / f"raise.{rank}"
    rows = Sums(step * ranks + rank, ranks, folder / f"loader.{rank}")
    for x, y in DataLoader(rows, batch_size=None, num_workers=1):
        if order.exists():
            order.unlink()
            raise RuntimeError(f"rank {rank} was told to fail")
        loss = torch.nn.functional.mse_loss(ddp(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        heartbeats.step(step)
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        if first:
            say(f"step {step}/{ROWS} loss {mean.item():.9f}")
            if step % SAVE_EVERY == 0:
                save(checkpoint, {"step": step, "model": model.state_dict(),
                                  "optimizer": optimizer.state_dict()})
                say(f"saved {checkpoint} step {step}")
        time.sleep(SECONDS_A_STEP)


if __name__ == "__main__":
    main()
