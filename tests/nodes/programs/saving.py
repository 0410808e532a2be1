"""A rank whose save, after SIGTERM, needs all ranks: it ends when the launcher requests an abort.

Usage: saving.py FOLDER
"""

import json
import os
import pathlib
import signal
import socket
import sys

folder, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
launcher = socket.socket(socket.AF_UNIX)
launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\0", 1))
launcher.sendall(json.dumps({"rank": int(rank), "aborts": True}).encode() + b"\n")
signal.signal(signal.SIGTERM, lambda *_: (folder / f"saving.{rank}").touch())
(folder / f"new.{rank}").write_text(str(os.getpid()))
(folder / f"new.{rank}").rename(folder / f"pid.{rank}")
if json.loads(launcher.makefile().readline())["abort"]:
    (folder / f"aborted.{rank}").touch()
    os._exit(143)
