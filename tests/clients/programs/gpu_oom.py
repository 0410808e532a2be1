"""Raises torch's out-of-memory error: in attempt 0 uncaught, in attempt 1 under @record and
without stderr; later attempts succeed."""

import os

import torch
from torch.distributed.elastic.multiprocessing.errors import record


def allocate():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a "
                                 "total capacity of 15.77 GiB of which 2.41 GiB is free.")


@record
def recorded():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    allocate()


if __name__ == "__main__":
    print("oom count", os.environ["MGPU_OOM_COUNT"], flush=True)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if attempt == "0":
        allocate()
    if attempt == "1":
        recorded()
