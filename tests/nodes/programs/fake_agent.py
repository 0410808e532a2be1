"""A fake agent for --hostfile: writes down its arguments and environment, then does what DO_<rank>
names: "exit N", "wait" for the end of its stdin, "ask TEXT" and wait for that end, "defy" that end,
or "print N" lines."""

import json
import os
import pathlib
import signal
import sys

rank = next(word for word in sys.argv if word.startswith("--node-rank=")).partition("=")[2]
folder = pathlib.Path(os.environ["NOTES"])
token = sys.stdin.readline()


def note(name, text):
    (folder / f"part.{name}").write_text(text)
    (folder / f"part.{name}").rename(folder / name)


verb, _, number = os.environ.get(f"DO_{rank}", "exit 0").partition(" ")
if verb == "defy":
    for signo in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signo, signal.SIG_IGN)
note(f"agent.{rank}", json.dumps({"argv": sys.argv[1:], "env": dict(os.environ),
                                  "cwd": os.getcwd(), "token": token, "pid": os.getpid()}))
if verb == "ask":
    print(number, end="", flush=True)
if verb in ("wait", "ask", "defy"):
    sys.stdin.read()
    note(f"stopped.{rank}", "stopped")
    if verb == "defy":
        signal.pause()
    sys.exit(143)
if verb == "print":
    for i in range(int(number)):
        print(f"{rank} {i} " + rank * 50)
    sys.exit(0)
sys.exit(int(number))
