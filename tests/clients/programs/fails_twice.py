"""Forms a gloo group; rank 1 exits 7 in attempts 0 and 1, after the group has formed."""

import os
import sys
import time

import torch
import torch.distributed as dist

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
if attempt < 2:
    if dist.get_rank() == 1:
        os._exit(7)
    time.sleep(60)
dist.barrier()
dist.destroy_process_group()
print("done in attempt", attempt, flush=True)
