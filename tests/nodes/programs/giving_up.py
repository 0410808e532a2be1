"""Rank 1 suspends itself; rank 0 waits until it is, and then fails with a message that something timed out. The first
argument is a folder that both share, the second one the message."""

import os
import pathlib
import signal
import sys
import time

place = pathlib.Path(sys.argv[1], "pid")
if os.environ["RANK"] == "1":
    place.with_suffix(".new").write_text(str(os.getpid()))
    place.with_suffix(".new").rename(place)
    os.kill(os.getpid(), signal.SIGSTOP)
while not place.exists():
    time.sleep(0.01)
while pathlib.Path("/proc", place.read_text(), "stat").read_text().rpartition(") ")[2][0] != "T":
    time.sleep(0.01)
sys.exit(sys.argv[2])
