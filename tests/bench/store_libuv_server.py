"""PyTorch's own TCPStore server (libuv) for store_bench --against.

Prints its port and serves until its standard input ends.
"""

import sys

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
print(store.port, flush=True)
sys.stdin.read()
