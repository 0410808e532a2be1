"""Prints lines for some seconds and then waits for ever, or until the file "go" exists in the folder that the first
argument names. The second argument is the rank that goes on to print; -1: none."""

import os
import pathlib
import sys
import time

end = time.monotonic() + 2
while not pathlib.Path(sys.argv[1], "go").exists():
    if time.monotonic() < end or os.environ["RANK"] == sys.argv[2]:
        print("at work", flush=True)
    time.sleep(0.1)
