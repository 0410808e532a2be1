"""Every rank does what a training program does first and prints its results as a JSON line.

It does not depend on mgpu-run: ranks and addresses come from the environment, as under torchrun.
"""

import json
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def through_the_group(rank, world):
    got = {}
    tensor = torch.tensor([rank + 1.0, 10.0 * rank])
    dist.all_reduce(tensor)
    got["all_reduce"] = tensor.tolist()

    tensor = torch.tensor([100 + rank])
    dist.broadcast(tensor, src=world - 1)
    got["broadcast"] = tensor.item()

    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "pid": os.getpid()})
    got["all_gather_object"] = [entry["rank"] for entry in objects]
    got["processes"] = len({entry["pid"] for entry in objects})

    # Every rank creates every group and then works in its own one.
    groups = [dist.new_group([r for r in range(world) if r % 2 == parity])
              for parity in range(min(2, world))]
    tensor = torch.tensor([1 << rank])
    dist.all_reduce(tensor, group=groups[rank % 2])
    got["new_group"] = tensor.item()

    for _ in range(3):
        dist.barrier()
    dist.monitored_barrier()
    return got


def through_the_store(rank, world):
    """A separate store client, as in programs that coordinate outside of the process group."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                          is_master=False, wait_for_workers=False, timeout=timedelta(seconds=60))
    got = {"order": store.add("arrived", 1)}
    store.set(f"of/{rank}", str(rank * rank))
    keys = [f"of/{r}" for r in range(world)]
    store.wait(keys, timedelta(seconds=60))
    got["multi_get"] = [value.decode() for value in store.multi_get(keys)]
    got["elected"] = store.compare_set("leader", "", str(rank)).decode()
    store.append("roll", f"{rank},")
    if rank == 0:
        for job in range(world):
            store.queue_push("jobs", str(job))
    got["job"] = store.queue_pop("jobs").decode()
    dist.barrier()
    got["roll"] = store.get("roll").decode()
    got["listed"] = sum(key.startswith("of/") for key in store.list_keys())
    try:
        store.wait([f"never/{rank}"], timedelta(milliseconds=50))
    except dist.DistError as error:
        got["timeout"] = type(error).__name__
    return got


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    got = {"rank": rank, "world": world, "elastic": dist.is_torchelastic_launched(),
           "agent_store": os.environ["TORCHELASTIC_USE_AGENT_STORE"],
           "group": through_the_group(rank, world), "store": through_the_store(rank, world)}
    dist.destroy_process_group()
    print(json.dumps(got), flush=True)


if __name__ == "__main__":
    main()
