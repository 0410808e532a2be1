"""A gloo program that reports its steps and then hangs in the way that its argument names."""

import json
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist


def load_batch():
    os.read(os.pipe()[0], 1)  # never returns: this process has the other end too


def compute():
    while True:
        pass


def main():
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    launcher = socket.socket(socket.AF_UNIX)
    launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\0", 1))
    for step in range(1, 5):
        dist.all_reduce(torch.ones(4))
        launcher.sendall(json.dumps({"rank": rank, "step": step}).encode() + b"\n")
    kind = sys.argv[1] if rank == last else "waiting"
    if kind == "suspended":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "sleeping":
        time.sleep(600)
    elif kind == "reading":
        load_batch()
    elif kind == "computing":
        compute()
    elif kind == "other":
        dist.barrier()
    dist.all_reduce(torch.ones(4))


main()
