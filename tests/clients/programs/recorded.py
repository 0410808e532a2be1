"""Fails on rank 1 under @record; rank 0 continues until it is stopped. "quiet": without stderr."""

import os
import sys
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if sys.argv[1:] == ["quiet"]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if os.environ["RANK"] == "1":
        raise ValueError("the third layer is upside down")
    time.sleep(300)


if __name__ == "__main__":
    main()
