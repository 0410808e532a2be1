#!/usr/bin/env python3
"""Measures how soon three nodes run again after the fourth is lost, and prints table rows.

The hosts are network namespaces (tests/nodes/netns.py; needs root). Each run is a new job with
two ranks per node that end at once on SIGTERM, a keep-alive and a grace period of 1 s. Times are
CLOCK_MONOTONIC: from before the last node is cut off, or its agent killed, to the last first
line of the six remaining ranks. docs/benchmarks/README.md explains each row.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nodes"))
import netns  # noqa: E402
from harness import MGPU_RUN, environment, until  # noqa: E402

NODES, RANKS = 4, 2
KEEP_ALIVE, GRACE = 1.0, 1.0
NOBODY = 99  # no such rank: none fails by itself


class Job:
    """A running job of four nodes."""

    def __init__(self, net, folder):
        self.net, self.stamps = net, folder / "stamps"
        self.stamps.unlink(missing_ok=True)
        token = folder / "token"
        token.write_text("a secret of this bench, 32 bytes or more\n")
        token.chmod(0o600)
        self.log = open(folder / "log", "ab")
        stamp = pathlib.Path(MGPU_RUN).parent / "stamp"
        self.agents = [host.start(
            [MGPU_RUN, "--nnodes", f"1:{NODES}", "--nproc", RANKS, "--keep-alive", KEEP_ALIVE,
             "--grace", GRACE, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{net[0].v4}:29400",
             "--rdzv-id", "bench", "--rdzv-token-file", token, "--no-python", stamp, self.stamps,
             NOBODY],
            folder, env=environment(TMPDIR=str(folder), CUDA_VISIBLE_DEVICES=""),
            stdout=self.log, stderr=self.log) for host in net.hosts]
        until(lambda: len(self.starts()) == NODES * RANKS, 30, "the first round")
        time.sleep(0.5)

    def starts(self):
        try:
            return [int(line.split()[3]) for line in self.stamps.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def seconds_until_all_run(self, lose):
        """Seconds from before lose() until the ranks of the other nodes run again."""
        before = len(self.starts())
        began = time.monotonic_ns()
        lose()
        again = before + (NODES - 1) * RANKS
        until(lambda: len(self.starts()) >= again, 30, "the next round")
        return (sorted(self.starts())[again - 1] - began) / 1e9

    def end(self):
        for host in self.net.hosts:
            for pid in host.pids():
                netns.send(pid, signal.SIGKILL)
        for agent in self.agents:
            agent.wait()
        until(lambda: not self.net.pids(), 10, "the end of the job")
        self.log.close()


class Cable:
    """The cable of the last host. The process that cuts it runs already, so cut() is immediate."""

    def __init__(self, net):
        self.net, self.switch, self.port = net, net.switch, f"h{NODES - 1}"
        self._nft = subprocess.Popen([*self.switch.enter(), "nft", "-f", "-"],
                                     stdin=subprocess.PIPE)

    def cut(self):
        self._nft.communicate(
            ("table bridge cut { chain forward { type filter hook forward priority 0; "
            f'iifname "{self.port}" drop; oifname "{self.port}" drop; }}; }}\n').encode())
        if self._nft.returncode != 0:
            raise RuntimeError("nft could not cut the node off")

    def mend(self):
        self.switch.call("nft", "delete", "table", "bridge", "cut")


def cut_off(net, folder):
    job, cable = Job(net, folder), Cable(net)
    time.sleep(0.5)
    taken = job.seconds_until_all_run(cable.cut)
    job.end()
    cable.mend()
    return taken


def killed(net, folder):
    job = Job(net, folder)
    taken = job.seconds_until_all_run(job.agents[-1].kill)
    job.end()
    return taken


def measure(what, runs, net, folder):
    """Median and worst, in milliseconds."""
    taken = []
    for run in range(runs):
        taken.append(1e3 * what(net, folder))
        print(f"\r{what.__name__}: {run + 1} of {runs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return statistics.median(taken), max(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    if netns.reason_to_skip():
        print(f"nodes_loss_bench: {netns.reason_to_skip()}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as name, netns.Net(NODES) as net:
        os.chmod(name, 0o755)
        folder = pathlib.Path(name)
        cut = measure(cut_off, runs, net, folder)
        dead = measure(killed, runs, net, folder)
    bound = 1e3 * (KEEP_ALIVE + GRACE)
    over = [milliseconds - bound for milliseconds in cut]
    met = over[1] <= 50
    print("| what | bar | median | worst | met |\n| --- | --- | --- | --- | --- |")
    print(f"| a node of {NODES} is cut off -> all ranks of the others run, less keep-alive and grace "
          f"| <= 50 ms | {over[0]:.0f} ms | {over[1]:.0f} ms | {'yes' if met else '**no**'} |")
    print(f"| `kill -9` of an agent of {NODES} -> all ranks of the others run | - "
          f"| {dead[0]:.0f} ms | {dead[1]:.0f} ms | - |")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
