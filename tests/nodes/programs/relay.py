"""Relays TCP connections and datagrams to another address and records them.

usage: relay.py ADDRESS PORT FOLDER. It listens at the same port and prints "ready". In FOLDER it
writes tcp.N, the bytes that the client of connection N sent, and udp.N, the client's datagrams, the
last one only. While FOLDER/replay exists it drops the datagrams of clients and sends the recorded
ones again, ten times a second.
"""

import os
import socket
import sys
import threading
import time

TARGET = (sys.argv[1], int(sys.argv[2]))
FOLDER = sys.argv[3]


def pump(source, sink, keep=None):
    try:
        while data := source.recv(65536):
            if keep:
                keep.write(data)
                keep.flush()
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def carry_connections(server):
    number = 0
    while True:
        client, _ = server.accept()
        try:
            other = socket.create_connection(TARGET, 5)
        except OSError:
            client.close()
            continue
        other.settimeout(None)
        keep = open(os.path.join(FOLDER, f"tcp.{number}"), "wb")  # noqa: SIM115
        number += 1
        threading.Thread(target=pump, args=(client, other, keep), daemon=True).start()
        threading.Thread(target=pump, args=(other, client), daemon=True).start()


class Datagrams:
    """One socket to the target for each client, so that answers reach the right client."""

    def __init__(self, server):
        self._server, self._clients, self._last = server, {}, {}

    def carry(self):
        while True:
            data, client = self._server.recvfrom(65536)
            if client not in self._clients:
                self._clients[client] = socket.socket(self._server.family, socket.SOCK_DGRAM)
                self._clients[client].connect(TARGET)
                threading.Thread(target=self._bring_back, args=(client,), daemon=True).start()
            if not replaying():
                self._last[client] = data
                with open(os.path.join(FOLDER, f"udp.{len(self._last) - 1}"), "wb") as keep:
                    keep.write(data)
                self._send(client, data)

    def _send(self, client, data):
        try:
            self._clients[client].send(data)
        except OSError:
            pass  # no process listens there now

    def _bring_back(self, client):
        while True:
            try:
                self._server.sendto(self._clients[client].recv(65536), client)
            except OSError:
                time.sleep(0.1)

    def replay(self):
        while True:
            time.sleep(0.1)
            if replaying():
                for client, data in list(self._last.items()):
                    self._send(client, data)


def replaying():
    return os.path.exists(os.path.join(FOLDER, "replay"))


def main():
    server = socket.create_server(("0.0.0.0", TARGET[1]))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("0.0.0.0", TARGET[1]))
    datagrams = Datagrams(udp)
    for work in (datagrams.carry, datagrams.replay):
        threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    carry_connections(server)


if __name__ == "__main__":
    main()
