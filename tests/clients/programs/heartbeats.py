"""An unmodified training loop with gloo and docs/examples/heartbeat.py. In step 6 rank 1 does what
the first argument names: "stop" (suspends itself), "leave" (does not take part), "work"."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from heartbeat import heartbeat

heartbeat(phase="loading")
dist.init_process_group("gloo")
for step in range(1, 9):
    if step == 6 and dist.get_rank() == 1:
        if sys.argv[1] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while sys.argv[1] == "leave":
            time.sleep(1)
    dist.all_reduce(torch.ones(4))
    time.sleep(0.3)
    heartbeat(step=step)
heartbeat(phase="ending")
dist.destroy_process_group()
