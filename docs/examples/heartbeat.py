"""Heartbeats for mgpu-run from any Python program: copy this file, it needs no package.

    from heartbeat import heartbeat

    heartbeat(phase="loading")        # before anything that takes longer than a step
    for step, batch in enumerate(loader, start=1):
        ...
        heartbeat(step=step)          # a step is done; this also ends a phase
    heartbeat(phase="ending")

Without mgpu-run the calls do nothing. See docs/launcher.md, "Hangs".
"""

import contextlib
import json
import os
import socket
import threading
import time

_line, _changed = {"rank": int(os.environ.get("RANK", 0))}, threading.Event()


def heartbeat(step=None, phase="training"):
    """Notes what this rank does; a thread sends the newest note, at most four a second."""
    global _line
    _line = {**_line, "phase": phase} if step is None else {**_line, "step": step, "phase": phase}
    _changed.set()


def _send():
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect(os.environ["MGPU_WORKER_SOCKET"].replace("@", "\0", 1))
        while _changed.wait():
            _changed.clear()
            launcher.sendall(json.dumps(_line).encode() + b"\n")
            time.sleep(0.25)


if "MGPU_WORKER_SOCKET" in os.environ:
    threading.Thread(target=_send, daemon=True).start()
