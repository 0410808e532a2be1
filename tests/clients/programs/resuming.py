"""DDP training that saves after every step and continues there when it is started again.

usage: resuming.py FOLDER [RANK STEP]: that rank kills itself before that step in attempt 0.
"""

import json
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 12


def save(path, state):
    torch.save(state, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


def main():
    folder = pathlib.Path(sys.argv[1])
    doomed_rank, doomed_step = map(int, sys.argv[2:4] or (-1, -1))
    first_attempt = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    checkpoint, first_step = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_step = saved["step"]

    for step in range(first_step, STEPS):
        if first_attempt and (rank, step) == (doomed_rank, doomed_step):
            os.kill(os.getpid(), signal.SIGKILL)
        data = torch.Generator().manual_seed(1000 * step + rank)  # the same in every attempt
        x = torch.randn(32, 8, generator=data)
        loss = torch.nn.functional.mse_loss(ddp(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            save(checkpoint, {"step": step + 1, "model": model.state_dict(),
                              "optimizer": optimizer.state_dict()})
        dist.barrier()  # no rank is a step ahead of the checkpoint

    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    print(json.dumps({"rank": rank, "first_step": first_step, "loss": loss.item(),
                      "parameters": parameters.tolist()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
