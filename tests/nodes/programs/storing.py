"""A rank that uses the store in unusual ways. usage: storing.py WHAT FOLDER

    large     rank 0 sets a value of 8 MiB, which all read 20 times while each has one client that
              requests it and never reads the answers
    listener  rank 0 listens on a port of its own; the others connect to it at MASTER_ADDR and at
              MGPU_LEADER_ADDR, and say where that worked

Each rank writes what it has found to FOLDER/RANK.
"""

import hashlib
import os
import pathlib
import socket
import sys

from counting import GET, Store, text

WHAT, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LARGE = 8 << 20
OWN_PORT = 29777


def meet(store, name):
    if store.add(name, 1) == SIZE:
        store.set(name + " all", "")
    store.get(name + " all")


def large(store):
    if RANK == 0:
        store.set("large", "x" * LARGE)
    meet(store, "set")
    never_reads = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    for _ in range(20):
        never_reads._socket.sendall(bytes([GET]) + text("large"))  # pylint: disable=protected-access
    digests = {hashlib.sha256(store.get("large").encode()).hexdigest() for _ in range(20)}
    meet(store, "read")
    return " ".join(digests)


def listener(store):
    if RANK == 0:
        with socket.create_server(("0.0.0.0", OWN_PORT)):
            meet(store, "listens")
            meet(store, "done")
        return "listened"
    meet(store, "listens")
    reached = []
    for name in ("MASTER_ADDR", "MGPU_LEADER_ADDR"):
        try:
            socket.create_connection((os.environ[name], OWN_PORT), 10).close()
            reached.append(name)
        except OSError:
            pass
    meet(store, "done")
    return " ".join(reached)


def main():
    store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    found = {"large": large, "listener": listener}[WHAT](store)
    (FOLDER / str(RANK)).write_text(found)


main()
