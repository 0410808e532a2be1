"""Runs every operation of PyTorch's own TCPStore client against the store on a port.

usage: store_ops.py [PORT [HOST]], by default MASTER_PORT at MASTER_ADDR; the store must be
empty. Exit status 0 if all results are those of c10d.
"""

import os
import sys
import threading
from datetime import timedelta

from torch.distributed import DistError, TCPStore


def client(seconds=20.0):
    return TCPStore(HOST, PORT, is_master=False, wait_for_workers=False,
                    timeout=timedelta(seconds=seconds))


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, wanted {wanted!r}")


def fails(what, call):
    try:
        call()
    except (DistError, RuntimeError):
        return
    sys.exit(f"{what}: no error")


def values(store):
    store.set("k", "v")
    expect("get", store.get("k"), b"v")
    store.set("bytes", "a\0b")
    expect("get of a NUL", store.get("bytes"), b"a\0b")
    store.set("large", "x" * (4 << 20))
    expect("get of 4 MiB", len(store.get("large")), 4 << 20)
    expect("add", store.add("n", 5), 5)
    expect("add again", store.add("n", -7), -2)
    expect("a sum is decimal", store.get("n"), b"-2")
    store.append("a", "one,")
    store.append("a", "two")
    expect("append", store.get("a"), b"one,two")
    expect("delete_key", store.delete_key("a"), True)
    expect("delete_key again", store.delete_key("a"), False)


def exchange(store):
    expect("compare_set, none and nothing expected", store.compare_set("c", "", "1"), b"1")
    expect("compare_set, equal", store.compare_set("c", "1", "2"), b"2")
    expect("compare_set, different", store.compare_set("c", "1", "3"), b"2")
    expect("compare_set, none but expected", store.compare_set("absent", "x", "y"), b"x")
    expect("which stores nothing", store.check(["absent"]), False)


def many(store):
    store.multi_set(["m1", "m2", "m3"], ["1", "22", ""])
    expect("multi_get", store.multi_get(["m3", "m1", "m2"]), [b"", b"1", b"22"])
    keys = [f"many/{i}" for i in range(5000)]
    store.multi_set(keys, [str(i) for i in range(5000)])
    expect("multi_get of 5000", store.multi_get(keys)[4999], b"4999")
    expect("check", store.check(["m1", "m2"]), True)
    expect("check of one that is absent", store.check(["m1", "absent"]), False)
    before = store.num_keys()
    store.set("one more", "")
    expect("num_keys", store.num_keys(), before + 1)
    if hasattr(store, "list_keys"):
        listed = store.list_keys()
        expect("list_keys", {"one more", "m1", "many/17"} <= set(listed), True)


def waiting(store):
    fails("wait for what never comes", lambda: store.wait(["never"], timedelta(milliseconds=100)))
    expect("the client is good after that", store.get("k"), b"v")
    other = client()
    waiter = threading.Thread(target=lambda: other.wait(["late/1", "late/2"]))
    waiter.start()
    store.set("late/1", "")
    store.add("late/2", 1)
    waiter.join(20)
    expect("wait ends", waiter.is_alive(), False)


def queues(store):
    if not hasattr(store, "queue_push"):
        return
    store.queue_push("q", "first")
    store.queue_push("q", "second")
    expect("queue_len", store.queue_len("q"), 2)
    expect("queue_pop", store.queue_pop("q"), b"first")
    expect("queue_pop", store.queue_pop("q", False), b"second")
    fails("queue_pop of nothing", lambda: store.queue_pop("q", False))
    other, got = client(), []
    popper = threading.Thread(target=lambda: got.append(other.queue_pop("q")))
    popper.start()
    store.queue_push("q", "third")
    popper.join(20)
    expect("queue_pop that waits", got, [b"third"])


def refused(store):
    store.set("word", "abc")
    fails("add to a word", lambda: client().add("word", 1))
    expect("the others go on", store.get("word"), b"abc")


if __name__ == "__main__":
    PORT = int(sys.argv[1] if len(sys.argv) > 1 else os.environ["MASTER_PORT"])
    HOST = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("MASTER_ADDR", "127.0.0.1")
    main = client()
    for part in (values, exchange, many, waiting, queues, refused):
        part(main)
    print("all operations as c10d has them")
