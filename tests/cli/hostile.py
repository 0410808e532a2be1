"""The protocol between agents and leader, for programs that do not keep to it; and other users."""

import hashlib
import hmac
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading

from harness import until

NOBODY = 65534
PROTOCOL = pathlib.Path(__file__).parents[2] / "rendezvous/protocol.hpp"
PREAMBLE = b"MGPU" + bytes([int(re.search(r"kProtocolVersion = (\d+);", PROTOCOL.read_text())[1])])
ESCAPES = "\x1b]0;pwned\x07\x1b[31mall done\x9b0m\nmgpu-run: forged"  # must never reach a terminal


def frame(message):
    body = json.dumps(message).encode()
    return struct.pack("<I", len(body)) + body


def mac(key, *parts):
    code = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        code.update(struct.pack("<Q", len(part)) + part)
    return code.digest()


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


def read_frame(connection):
    return read_exactly(connection, struct.unpack("<I", read_exactly(connection, 4))[0])


class Stranger:
    """Connects to a leader without knowing the secret."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.sendall(PREAMBLE)

    def send(self, message):
        self.socket.sendall(frame(message))

    def hello(self, job, **fields):
        self.nonce = os.urandom(32)
        self.send({"is": "hello", "job": job, "nonce": self.nonce.hex(), "purpose": "agent",
                   **fields})
        read_exactly(self.socket, len(PREAMBLE))
        return json.loads(read_frame(self.socket))

    def close(self):
        self.socket.close()


class Squatter:
    """Listens on the leader's port. answer(connection, hello) writes what it likes."""

    def __init__(self, port, answer):
        self.calls = 0
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    read_exactly(connection, len(PREAMBLE))
                    self._answer(connection, json.loads(read_frame(connection)))
                    self.calls += 1
                    connection.settimeout(1)
                    connection.recv(1)
                except OSError:
                    pass

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def as_nobody(function):
    """Runs a function in a process of another user, and returns its result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            result = function()
        except BaseException as error:  # pylint: disable=broad-except
            result = repr(error)
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return result


class Munged:
    """A munged of its own, with its key in `folder`."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        self.socket = folder / "munge.socket"
        key = folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        self.process = subprocess.Popen(
            [program("munged"), "--foreground", "--force", f"--key-file={key}",
             f"--socket={self.socket}", f"--pid-file={folder}/munge.pid",
             f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self.socket.exists, 20, "munged's socket")

    def encode(self, text, reader):
        return subprocess.run(["munge", "-S", self.socket, "-u", str(reader)], input=text,
                              capture_output=True, check=True).stdout.decode().strip()

    def decode(self, sealed):
        """munge's message and the payload."""
        done = subprocess.run(["unmunge", "-S", self.socket], input=sealed.encode(),
                              capture_output=True, check=False)
        return done.stderr.decode() + done.stdout.decode(errors="replace")

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()


def program(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def reason_to_skip_munge():
    if os.geteuid() != 0:
        return "only root can become another user"
    missing = [name for name in ("munged", "munge", "unmunge") if not program(name)]
    return f"there is no {missing[0]} here" if missing else None
