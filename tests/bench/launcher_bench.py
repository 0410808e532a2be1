#!/usr/bin/env python3
"""Measures mgpu-run and torchrun in turn on the same machine and prints a markdown table.

scripts/bench.sh runs all of it. Progress goes to stderr, the table to stdout; the exit status is 1
if a limit is missed. docs/benchmarks/README.md explains each row.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 120  # seconds to wait for anything
# If GPUs were visible, more ranks than GPUs would be rejected; the workers here need none.
ENVIRONMENT = {**{name: value for name, value in os.environ.items()
                  if not name.startswith(("PET_", "MGPU_", "TORCHELASTIC_"))},
               "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

Row = collections.namedtuple("Row", "what bar ours theirs ratio met")


class Launcher:
    """mgpu-run or torchrun, started as by a shell, without the cost of forking Python."""

    def __init__(self, name, command, scratch):
        self.name, self.command, self.scratch = name, command, scratch
        self.log = scratch / f"{name}.log"

    def start(self, ranks, restarts, *worker):
        argv = [str(word) for word in (*self.command, "--nproc-per-node", ranks, "--max-restarts",
                                       restarts, "--no-python", *worker)]
        write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return os.posix_spawn(argv[0], argv, ENVIRONMENT, file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.log), write, 0o666),
            (os.POSIX_SPAWN_DUP2, 1, 2)])

    def expect(self, pid, status):
        """Waits for the end of the launcher and returns its time."""
        signal.alarm(LIMIT)
        _, raw = os.waitpid(pid, 0)
        ended = time.monotonic_ns()
        signal.alarm(0)
        if os.waitstatus_to_exitcode(raw) not in status:
            raise RuntimeError(f"{self.name} ended with {os.waitstatus_to_exitcode(raw)}:\n"
                               + self.log.read_text(errors="replace"))
        return ended


def seconds_of_true(launcher):
    began = time.monotonic_ns()
    return (launcher.expect(launcher.start(4, 0, shutil.which("true")), {0}) - began) / 1e9


def stamps(launcher, ranks, restarts, status):
    """The times that the ranks of a job with one failure wrote, and the end of the launcher."""
    file = launcher.scratch / "stamps"
    file.unlink(missing_ok=True)
    ended = launcher.expect(
        launcher.start(ranks, restarts, launcher.stamp, file, ranks - 1), status)
    noted = collections.defaultdict(list)
    for line in file.read_text().splitlines():
        what, attempt, _, when = line.split()
        noted[what, int(attempt)].append(int(when))
    if len(noted["start", 0]) != ranks or len(noted["death", 0]) != 1:
        raise RuntimeError(f"{launcher.name} started {len(noted['start', 0])} of {ranks} ranks")
    return noted, ended


def seconds_to_restart(launcher, ranks):
    noted, _ = stamps(launcher, ranks, 1, {0})
    if len(noted["start", 1]) != ranks:
        raise RuntimeError(f"{launcher.name} started {len(noted['start', 1])} ranks again")
    return (max(noted["start", 1]) - noted["death", 0][0]) / 1e9


def seconds_to_end(launcher):
    noted, ended = stamps(launcher, 4, 0, {1})
    return (ended - noted["death", 0][0]) / 1e9


def children_of(pid):
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found[int(child)] = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
    return found


class QuietJob:
    """A job of eight sleeping workers. `own`: the processes of the launcher and its guard."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.pid = launcher.start(8, 0, shutil.which("sleep"), 1000)
        deadline = time.monotonic() + LIMIT
        while True:
            children = children_of(self.pid)
            if list(children.values()).count("sleep") == 8:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{launcher.name} did not start 8 workers: {children}")
            time.sleep(0.01)
        time.sleep(0.5)
        self.own = [self.pid, *(child for child, name in children.items() if name != "sleep")]

    def mebibytes(self):
        """Resident and proportional memory."""
        text = "".join(pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.own)
        return [sum(map(int, re.findall(rf"^{kind}: +(\d+) kB", text, re.M))) / 1024
                for kind in ("Rss", "Pss")]

    def cpu_seconds(self):
        """CPU time so far, in nanoseconds if the kernel counts them, else in ticks."""
        total = 0
        for pid in self.own:
            tasks = [int(file.read_text().split()[0])
                     for file in pathlib.Path("/proc").glob(f"{pid}/task/*/schedstat")]
            if tasks:
                total += sum(tasks) / 1e9
            else:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        self.launcher.expect(self.pid, {1, 143, -15})


def memory(launcher):
    job = QuietJob(launcher)
    sizes = job.mebibytes()
    job.stop()
    return sizes


def quiet_cpu(launchers, span):
    """CPU seconds that each launcher uses while its workers sleep, all at the same time."""
    jobs = [QuietJob(launcher) for launcher in launchers]
    time.sleep(1)
    before = [job.cpu_seconds() for job in jobs]
    time.sleep(span)
    spent = [job.cpu_seconds() - start for job, start in zip(jobs, before)]
    for job in jobs:
        job.stop()
    return spent


def in_turn(title, measure, ours, theirs, counts):
    """Medians of ours, theirs, ours, theirs ... so that both run under the same load."""
    results = ([], [])
    for run in range(max(counts)):
        for launcher, count, found in zip((ours, theirs), counts, results):
            if run < count:
                found.append(measure(launcher))
        print(f"\r{title}: {run + 1} of {max(counts)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if isinstance(results[0][0], list):
        return [[statistics.median(column) for column in zip(*found)] for found in results]
    return [statistics.median(found) for found in results]


def time_row(what, bar_ms, ours, theirs, times=0):
    ratio = theirs / ours
    bar = f"<= {bar_ms} ms" + (f", >= {times} x" if times else "")
    return Row(what, bar, f"{ours * 1e3:.2f} ms", f"{theirs * 1e3:.0f} ms", f"{ratio:.0f} x",
               ours * 1e3 <= bar_ms and ratio >= times)


def launcher_rows(ours, theirs, counts, quiet_span):
    yield time_row("4 x /bin/true, start to end", 10,
                   *in_turn("4 x /bin/true", seconds_of_true, ours, theirs, counts), times=150)
    (our_rss, our_pss), (their_rss, their_pss) = in_turn("memory", memory, ours, theirs, counts)
    yield Row("memory with 8 workers running, guard included: RSS (PSS)", "<= 8 MiB RSS",
              f"{our_rss:.1f} ({our_pss:.1f}) MiB", f"{their_rss:.0f} ({their_pss:.0f}) MiB",
              f"{their_rss / our_rss:.0f} x", our_rss <= 8)
    for ranks, bar in ((4, 6), (8, 10)):
        yield time_row(f"a rank of {ranks} dies -> every rank exec'ed again", bar,
                       *in_turn(f"restart of {ranks}",
                                lambda launcher, ranks=ranks: seconds_to_restart(launcher, ranks),
                                ours, theirs, counts))
    yield time_row("a rank of 4 dies -> the launcher has ended", 20,
                   *in_turn("death to end", seconds_to_end, ours, theirs, counts))
    print(f"quiet workers: {quiet_span} s", file=sys.stderr)
    our_cpu, their_cpu = quiet_cpu((ours, theirs), quiet_span)
    yield Row(f"CPU time while 8 workers run quietly for {quiet_span} s, one run", "<= 10 ms",
              f"{our_cpu * 1e3:.2f} ms", f"{their_cpu * 1e3:.0f} ms",
              f"{their_cpu / our_cpu:.0f} x" if our_cpu else "-", our_cpu * 1e3 <= 10)


def store_rows(program, python, runs):
    """The rows of store_bench, next to the server of the torch wheel."""
    server = subprocess.Popen([python, "-B", HERE / "store_libuv_server.py"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
    try:
        port = server.stdout.readline().strip()
        print(f"store: {runs} runs", file=sys.stderr)
        text = subprocess.run([program, "--against", port, "--runs", str(runs)], check=True,
                              text=True, stdout=subprocess.PIPE).stdout
    finally:
        server.stdin.close()
        server.wait()
    for in_flight, bar in ((1, 1.1), (16, 5)):
        ours, theirs, ratio = map(float, re.search(
            rf"^get, 16 x {in_flight} in flight +(\d+)/s +(\d+)/s +([\d.]+) x", text, re.M).groups())
        yield Row(f"store: 16 clients get 32 bytes, {in_flight} in flight each", f">= {bar} x",
                  f"{ours / 1e3:.0f}k/s", f"{theirs / 1e3:.0f}k/s", f"{ratio:.2f} x", ratio >= bar)
    clients, joined = re.search(r"^(\d+) clients join +([\d.]+) s", text, re.M).groups()
    met = float(re.search(r"at a barrier +([\d.]+) s", text)[1])
    yield Row(f"store: {int(clients):,} connections join, then meet at a barrier", "<= 1.5 s",
              f"{joined} + {met} s", "-", "-", float(joined) + met <= 1.5)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mgpu-run", required=True, type=os.path.abspath)
    parser.add_argument("--torchrun", required=True, type=os.path.abspath)
    parser.add_argument("--stamp", type=os.path.abspath, help="[beside mgpu-run]")
    parser.add_argument("--store-bench", type=os.path.abspath, help="also the store's rows")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--torchrun-runs", type=int, help="of torchrun, at seconds each [as --runs]")
    parser.add_argument("--quick", action="store_true", help="3 runs, 10 s of quiet workers")
    options = parser.parse_args(words)
    if options.quick:
        options.runs = min(options.runs, 3)
    options.torchrun_runs = min(options.torchrun_runs or options.runs, options.runs)
    return options


def main():
    options = parse(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        ours = Launcher("mgpu-run", [options.mgpu_run], scratch)
        # --standalone: without it every torchrun on the machine uses port 29500.
        theirs = Launcher("torchrun", [options.torchrun, "--standalone"], scratch)
        ours.stamp = theirs.stamp = options.stamp or pathlib.Path(options.mgpu_run).parent / "stamp"
        rows = list(launcher_rows(ours, theirs, (options.runs, options.torchrun_runs),
                                  10 if options.quick else 60))
        if options.store_bench:
            python = pathlib.Path(options.torchrun).parent / "python"
            rows += store_rows(options.store_bench, python, 3 if options.quick else 5)
    print("| what | bar | mgpu-run | torchrun | ratio | met |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join((*row[:-1], "yes" if row.met else "**no**")) + " |")
    runs = f"Medians of {options.runs} runs"
    if options.torchrun_runs != options.runs:
        runs += f" of mgpu-run and {options.torchrun_runs} of torchrun"
    print(f"\n{runs}, in turn; the store's of {3 if options.quick else 5}." if options.store_bench
          else f"\n{runs}, in turn.")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
