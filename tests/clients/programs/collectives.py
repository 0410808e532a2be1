"""Every collective of a gloo group that env:// forms, checked; says ok once per rank."""

import os

import torch
import torch.distributed as dist

assert dist.is_torchelastic_launched() and dist.is_available()
dist.init_process_group("gloo", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
assert x.item() == world * (world + 1) / 2, x

y = torch.tensor([float(rank)])
dist.broadcast(y, src=world - 1)
assert y.item() == world - 1

names = [None] * world
dist.all_gather_object(names, {"rank": rank})
assert [name["rank"] for name in names] == list(range(world))

even = dist.new_group([r for r in range(world) if r % 2 == 0])
if rank % 2 == 0:
    z = torch.ones(1)
    dist.all_reduce(z, group=even)
    assert z.item() == (world + 1) // 2

dist.barrier()
dist.monitored_barrier()
store = dist.distributed_c10d._get_default_store()
store.set(f"rank{rank}", "here")
store.wait([f"rank{r}" for r in range(world)])
dist.destroy_process_group()
print("ok", rank, flush=True)
