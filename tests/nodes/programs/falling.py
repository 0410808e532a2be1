"""A rank that fails by itself, or because another rank has failed.

usage: falling.py FOLDER FIRST SECOND: once FOLDER/go exists, rank FIRST raises an exception; rank
SECOND raises one 100 ms after that process has ended. Both write the error file of torch's @record,
with the time of the wall clock. Both ignore SIGTERM.
"""

import json
import os
import pathlib
import signal
import sys
import time
import traceback

FOLDER, FIRST, SECOND = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
RANK = os.environ["RANK"]


def fail(error):
    """Like @record: writes the error file and raises the exception again."""
    content = {"message": {"message": repr(error), "extraInfo": {
        "py_callstack": "".join(traceback.format_exception(error)),
        "timestamp": str(int(time.time()))}}}
    text = json.dumps(content)
    pathlib.Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(text, encoding="utf-8")
    (FOLDER / f"error.{RANK}").write_text(text, encoding="utf-8")
    raise error


signal.signal(signal.SIGTERM, signal.SIG_IGN)
(FOLDER / f"part.{RANK}").write_text(str(os.getpid()), encoding="ascii")
(FOLDER / f"part.{RANK}").rename(FOLDER / f"up.{RANK}")
while not (FOLDER / "go").exists():
    time.sleep(0.005)
if RANK == FIRST:
    fail(ValueError("the data are gone"))
if RANK == SECOND:
    first = (FOLDER / f"up.{FIRST}").read_text(encoding="ascii")
    while os.path.exists(f"/proc/{first}"):
        time.sleep(0.005)
    time.sleep(0.1)
    fail(ConnectionError("a peer has closed the connection"))
time.sleep(60)
