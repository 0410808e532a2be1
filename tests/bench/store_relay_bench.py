#!/usr/bin/env python3
"""Measures the ranks' store on the leader's node and on another one, relayed and direct.

The hosts are network namespaces (tests/nodes/netns.py; needs root). On one host at a time a rank
runs store_bench; it prints table rows. docs/benchmarks/README.md explains each row.
"""

import argparse
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nodes"))
import netns  # noqa: E402
from harness import MGPU_RUN, environment  # noqa: E402

SCRIPT = ('if [ "$RANK" = "$MEASURED" ]; then "$BENCH" --at "$MASTER_ADDR" "$MASTER_PORT" '
          '--runs "$RUNS" > figures.new && mv figures.new figures; fi; '
          'until [ -e figures ]; do sleep 0.1; done')


def measure(net, folder, mode, rank, runs):
    """Requests per second of 16 clients with 16 and with 1 in flight; us of one client's request."""
    (folder / "figures").unlink(missing_ok=True)
    token = folder / "token"
    token.write_text("a secret of this bench, 32 bytes or more\n")
    token.chmod(0o600)
    bench = pathlib.Path(MGPU_RUN).parent / "store_bench"
    with open(folder / "log", "ab") as log:
        agents = [host.start(
            [MGPU_RUN, "--nnodes", "2", "--nproc", "1", "--node-rank", str(host.index),
             "--master-addr", net[0].v4, "--master-port", "29400", "--store", mode,
             "--rdzv-token-file", token, "--no-python", "sh", "-c", SCRIPT],
            folder, env=environment(TMPDIR=str(folder), CUDA_VISIBLE_DEVICES="", BENCH=str(bench),
                                    MEASURED=str(rank), RUNS=str(runs)),
            stdout=log, stderr=log) for host in net.hosts]
        if any([agent.wait(120) != 0 for agent in agents]):
            raise RuntimeError((folder / "log").read_text())
    return [float(figure) for figure in (folder / "figures").read_text().split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    if netns.reason_to_skip():
        print(f"store_relay_bench: {netns.reason_to_skip()}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as name, netns.Net(2) as net:
        os.chmod(name, 0o755)
        folder = pathlib.Path(name)
        near = {mode: measure(net, folder, mode, 0, runs) for mode in ("direct", "relay")}
        far = {mode: measure(net, folder, mode, 1, runs) for mode in ("direct", "relay")}
    ratio = far["relay"][0] / far["direct"][0]
    more = far["relay"][2] - far["direct"][2]
    same = near["relay"][0] / near["direct"][0]
    met = ratio >= 0.5 and more <= 100 and same >= 0.95
    print("\n| store, 16 clients get 32 bytes | bar | direct | relay | relay to direct | met |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for where, figures, bar, good in (
            ("the leader's node, 16 in flight each", near, ">= 0.95 x", same >= 0.95),
            ("another node, 16 in flight each", far, ">= 0.5 x", ratio >= 0.5)):
        print(f"| {where} | {bar} | {figures['direct'][0]:,.0f}/s | {figures['relay'][0]:,.0f}/s "
              f"| {figures['relay'][0] / figures['direct'][0]:.2f} x "
              f"| {'yes' if good else '**no**'} |")
    print(f"| another node, one request of one client | <= 100 us more | {far['direct'][2]:.1f} us "
          f"| {far['relay'][2]:.1f} us | {more:+.1f} us | {'yes' if more <= 100 else '**no**'} |")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
