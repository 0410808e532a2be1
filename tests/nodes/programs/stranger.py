"""Sends to a port what no agent and no rank would send: garbage, replays, or nothing.

usage: stranger.py WHAT ADDRESS PORT [FILE]. It prints its findings, one word per line:

    store      sends a rank's request to the store: prints "served" or "refused"
    garbage    random bytes, huge lengths, unfinished handshakes, on many connections; prints "sent"
    idle N     opens N connections, prints "open", and holds them until stdin ends
    replay     sends the bytes of FILE: prints "answered BYTES", "closed" if the other side closes
    datagrams  random datagrams of all sizes; prints "sent"
    calls N    begins a handshake as an agent of protocol version N: prints "version N" with that of
               the other side if it has sent one, and "closed" if it closes
    leads N    does the same as a leader, to every client until none comes for 5 s; it prints
               "listening" before, and the rest for the first client only
"""

import io
import os
import random
import socket
import struct
import sys

WHAT, ADDRESS, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
VALIDATE = struct.pack("=BI", 0, 0x3C85F7CE)
PING = struct.pack("=BI", 13, 4711)


def connect():
    return socket.create_connection((ADDRESS, PORT), 5)


def receive_all(connection, limit=10.0):
    """All bytes until the other side closes or the limit, and whether it has closed."""
    connection.settimeout(limit)
    got = b""
    try:
        while more := connection.recv(65536):
            got += more
        return got, True
    except ConnectionError:
        return got, True
    except TimeoutError:
        return got, False


def store():
    try:
        with connect() as rank:
            rank.sendall(VALIDATE + PING)
            rank.settimeout(5)
            print("served" if rank.recv(4) else "refused")
    except OSError:
        print("refused")


def garbage():
    source = random.Random(int(sys.argv[4]))
    beginnings = [b"", b"M", b"\0", b"MGPU", VALIDATE, b"M\0\0\0\1", b"\xff\xff\xff\xff",
                  b"M" + b"\xff" * 8, VALIDATE + b"\1" + b"\xff" * 8, b"GET / HTTP/1.1\r\n\r\n",
                  b"\x16\x03\x01\x02\0\1\0"]
    for number in range(200):
        try:
            with connect() as peer:
                peer.sendall(beginnings[number % len(beginnings)]
                             + source.randbytes(source.randrange(0, 5000)))
                if number % 3 == 0:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
    print("sent")


def idle():
    connections = []
    for number in range(int(sys.argv[4])):
        try:
            connections.append(connect())
            connections[-1].sendall([b"", b"M", b"\0"][number % 3])
        except OSError:
            pass
    print("open", len(connections), flush=True)
    sys.stdin.read()


def replay():
    with open(sys.argv[4], "rb") as recorded, connect() as peer:
        try:
            peer.sendall(recorded.read())
        except OSError:
            pass
        got, closed = receive_all(peer)
        print("answered", len(got))
        if closed:
            print("closed")


def greet(peer, out=sys.stdout):
    """Sends the version and a frame of an unknown kind; prints the other side's version."""
    try:
        peer.sendall(b"MGPU" + bytes([int(sys.argv[4])]) + struct.pack("<I", 5) + b"later")
    except OSError:
        pass
    got, closed = receive_all(peer)
    if got[:4] == b"MGPU" and len(got) > 4:
        print("version", got[4], file=out)
    if closed:
        print("closed", file=out)


def calls():
    with connect() as peer:
        greet(peer)


def leads():
    with socket.create_server((ADDRESS, PORT)) as server:
        print("listening", flush=True)
        server.settimeout(5)
        out = sys.stdout
        try:
            while True:
                with server.accept()[0] as peer:
                    greet(peer, out)
                out = io.StringIO()
        except TimeoutError:
            pass


def datagrams():
    source = random.Random(int(sys.argv[4]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.connect((ADDRESS, PORT))
        for number in range(3000):
            try:
                peer.send(os.urandom(source.choice([0, 1, 8, 32, 40, 48, 56, 64, 72, 100, 1400])))
            except OSError:
                pass
    print("sent")


if __name__ == "__main__":
    {"store": store, "garbage": garbage, "idle": idle, "replay": replay,
     "datagrams": datagrams, "calls": calls, "leads": leads}[WHAT]()
