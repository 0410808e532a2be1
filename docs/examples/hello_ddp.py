"""A minimal DDP job: fits y = Xw on each rank's own data.

    mgpu-run --nproc 4 docs/examples/hello_ddp.py

Uses NCCL if every worker has its own GPU, else gloo on the CPU.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if on_gpu:
        torch.cuda.set_device(local_rank)
    else:
        torch.set_num_threads(1)
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)  # the same target and the same initial weights on every rank
    truth = torch.randn(16, 1, device=device)
    model = torch.nn.Linear(16, 1, bias=False).to(device)
    ddp = DistributedDataParallel(model, device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr)

    torch.manual_seed(100 + rank)  # different data on every rank
    for step in range(1, args.steps + 1):
        x = torch.randn(64, 16, device=device)
        loss = torch.nn.functional.mse_loss(ddp(x), x @ truth)
        optimizer.zero_grad()
        loss.backward()  # the gradients are averaged over the ranks here
        optimizer.step()
        if step == 1 or step % 10 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step:3d}  loss {mean.item() / world:.6f}", flush=True)

    error = (model.weight.detach().T - truth).abs().max().item()
    if rank == 0:
        print(f"{world} workers on {device.type}: largest error of a weight {error:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
