"""Real etcd servers on loopback, and clients of them that use our library."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

BUILD = pathlib.Path(os.environ.get("MGPU_BUILD") or
                     pathlib.Path(__file__).resolve().parents[2] / "build")
ETCD = shutil.which("etcd")
ETCDCTL = shutil.which("etcdctl")


LEASE = 2  # seconds: the shortest that etcd grants


def reason_for_no_etcd():
    """Why etcd cannot be run here, or None."""
    if not ETCD or not ETCDCTL:
        return "etcd and etcdctl are not installed (Debian's etcd-server and etcd-client)"
    return None


def reason_to_skip():
    """Why tests of our etcd client cannot run here, or None."""
    if reason_for_no_etcd():
        return reason_for_no_etcd()
    if not (BUILD / "bin" / "etcd_client").exists():
        return "etcd_client is not built"
    return None


def until(condition, limit=20.0, what="the condition"):
    deadline = time.monotonic() + limit
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {limit:.0f} s")
        time.sleep(0.01)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Member:
    """One etcd server, in a host of a Net or on this machine. It is killed when the test ends."""

    def __init__(self, folder, name, place, cluster, options, tls):
        self.host, address, self.port, peer_port = place
        self.scheme = "https" if tls else "http"
        self.url = f"{self.scheme}://{address}:{self.port}"
        peer = f"http://{address}:{peer_port}"
        self.command = [ETCD, "--name", name, "--data-dir", f"{folder}/{name}",
                        "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                        "--initial-cluster", cluster, "--initial-cluster-state", "new", *options]
        self.log = open(f"{folder}/{name}.log", "ab")
        self.process = None

    def start(self):
        start = self.host.start if self.host else subprocess.Popen
        self.process = start(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                             stderr=self.log)

    def send(self, signo):
        self.process.send_signal(signo)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def close(self):
        self.kill()
        self.log.close()


class Cluster:
    """The members of one etcd cluster, each in its own host if there are hosts."""

    def __init__(self, members=1, options=(), tls=None, hosts=()):
        # In memory: on a busy disk etcd is slow, and leases expire.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.mkdtemp(prefix="mgpu-etcd-", dir=memory)
        self.tls = tls or {}
        if tls:
            options = [*options, "--cert-file", tls["cert"], "--key-file", tls["key"]]
            if tls.get("client_ca"):
                options += ["--client-cert-auth", "--trusted-ca-file", tls["client_ca"]]
        ports = iter(free_ports(2 * members))
        places = ([(host, host.v4, 2379, 2380) for host in hosts] or
                  [(None, "127.0.0.1", next(ports), next(ports)) for _ in range(members)])
        cluster = ",".join(f"m{i}=http://{address}:{peer_port}"
                           for i, (_, address, _, peer_port) in enumerate(places))
        self.members = [Member(self.folder, f"m{i}", place, cluster, options, bool(tls))
                        for i, place in enumerate(places)]
        for member in self.members:
            member.start()

    @property
    def endpoints(self):
        return ",".join(member.url for member in self.members)

    def wait(self):
        until(lambda: self.ctl("endpoint", "health", check=False).returncode == 0, 30,
              "etcd's health")
        return self

    def ctl(self, *words, check=True, user=None):
        """Runs etcdctl."""
        host = self.members[-1].host
        command = [*(host.enter() if host else ()), ETCDCTL, "--endpoints", self.endpoints, "--command-timeout=5s"]
        if self.tls:
            command += ["--cacert", self.tls["ca"]]
        if self.tls.get("client_ca"):
            command += ["--cert", self.tls["cert"], "--key", self.tls["key"]]
        if user:
            command += ["--user", user]
        return subprocess.run([*command, *words], check=check, capture_output=True, text=True,
                              env={**os.environ, "ETCDCTL_API": "3"}, timeout=60)

    def leader(self):
        """The index of the member that is etcd's leader."""
        def ask():
            for i, member in enumerate(self.members):
                if member.process.poll() is not None:
                    continue
                try:
                    request = urllib.request.Request(member.url + "/v3/maintenance/status", b"{}")
                    with urllib.request.urlopen(request, timeout=1) as answer:
                        status = json.load(answer)
                except (urllib.error.URLError, OSError):
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return i + 1
            return None
        return until(ask, 20, "a leader of the etcd members") - 1

    def close(self):
        for member in self.members:
            member.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Client:
    """Our etcd_client: say() writes to it, wait() reads what it prints."""

    def __init__(self, endpoints, job="job", through=(), **options):
        words = [f"endpoints={endpoints}", f"job={job}",
                 *(f"{name}={value}" for name, value in options.items())]
        self.process = subprocess.Popen([*through, BUILD / "bin" / "etcd_client", *words],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1)
        self.lines = []
        self.read = 0
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for text in self.process.stdout:
            with self.news:
                self.lines.append(json.loads(text))
                self.news.notify_all()

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def wait(self, what, limit=20.0, **fields):
        """The next line of this kind and with these fields; earlier lines are skipped for good."""
        deadline = time.monotonic() + limit
        with self.news:
            while True:
                while self.read < len(self.lines):
                    line = self.lines[self.read]
                    self.read += 1
                    if line["what"] == what and fits(line, fields):
                        return line
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no {what} with {fields} within {limit:.0f} s; "
                                         f"last lines: {self.lines[-5:]}")
                self.news.wait(left)

    def ask(self, *words, what, limit=20.0):
        self.say(*words)
        return self.wait(what, limit)

    def change(self, limit=20.0, **fields):
        return self.wait("change", limit, **fields)

    def sees(self, limit=20.0, **fields):
        """Waits until the newest change has these fields, and skips all lines so far."""
        def newest():
            with self.news:
                changes = [line for line in self.lines if line["what"] == "change"]
                if changes and fits(changes[-1], fields):
                    self.read = len(self.lines)
                    return changes[-1]
                return None
        return until(newest, limit, f"a last change with {fields}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def send(self, signo):
        self.process.send_signal(signo)

    def close(self):
        ended = self.process.poll()
        self.send(signal.SIGCONT)
        self.kill()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()
        if ended not in (None, 0, 1, -signal.SIGKILL):  # 1: it has printed an error
            raise AssertionError(f"etcd_client ended with status {ended}")


def fits(line, fields):
    return all(value(line.get(name)) if callable(value) else line.get(name) == value
               for name, value in fields.items())


class EtcdTest(unittest.TestCase):
    def cluster(self, *args, **kwargs):
        cluster = Cluster(*args, **kwargs)
        self.addCleanup(cluster.close)
        return cluster.wait()

    def client(self, endpoints, **options):
        client = Client(endpoints, **{"lease": LEASE, **options})
        self.addCleanup(client.close)
        return client

    def candidate(self, endpoints, address, **options):
        client = self.client(endpoints, **options)
        client.say("campaign", address)
        return client
