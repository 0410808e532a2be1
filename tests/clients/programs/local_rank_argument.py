"""Old style: distributed only if --local-rank comes; else silently one process, alone."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
parser.add_argument("--lr", type=float, default=0)
args = parser.parse_args()
print("alone" if args.local_rank == -1 else f"rank {args.local_rank}", args.lr, flush=True)
