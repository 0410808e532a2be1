"""A slow wire: carries frames between two bridges of this network namespace with a delay.

usage: slow_wire.py SECONDS BRIDGE BRIDGE. It prints "ready" when it works.
"""

import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


def tap(name, bridge):
    """A TAP device that is a port of the bridge. Frames are read from and written to the result.
    The kernel completes checksums and cuts long segments before they are read."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    for command in (["txqueuelen", "5000"], ["master", bridge], ["up"]):
        subprocess.run(["ip", "link", "set", name, *command], check=True)
    return device


def frames(device):
    while True:
        try:
            yield os.read(device, 65536)
        except BlockingIOError:
            return


def main():
    seconds, bridges = float(sys.argv[1]), sys.argv[2:4]
    ends = [tap(f"{bridges[0]}t{i}", bridge) for i, bridge in enumerate(bridges)]
    print("ready", end="", flush=True)
    os.close(1)
    travelling = collections.deque()  # (time of arrival, device, frame), in the order of arrival
    while True:
        wait = max(0.0, travelling[0][0] - time.monotonic()) if travelling else None
        for device in select.select(ends, [], [], wait)[0]:
            other = ends[1 - ends.index(device)]
            arrival = time.monotonic() + seconds
            travelling.extend((arrival, other, frame) for frame in frames(device))
        while travelling and travelling[0][0] <= time.monotonic():
            _, other, frame = travelling.popleft()
            try:
                os.write(other, frame)
            except BlockingIOError:
                pass  # a full queue drops frames, as any switch does


if __name__ == "__main__":
    main()
