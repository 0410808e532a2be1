#!/usr/bin/env python3
"""Measures mgpu-train and the other programs that the machine has, in turn, and prints a page.

    scripts/bench.sh --trainer [OPTIONS]        builds, then runs this
    python3 -B tests/bench/trainer_bench.py     on a machine that only has the programs

The page, in Markdown, goes to stdout and progress to stderr. The exit status is 1 if a release bar
of trainer_bars.json is missed or one of our programs fails. docs/benchmarks/README.md explains the
cases.
"""

import argparse
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from training import bars, machine, page, peers
from training.cases import BY_NAME, CASES
from training.results import CaseResult, Runs, checks
from training.settings import Failed, Settings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUICK_SECONDS = 120  # --quick ends by then
LEAST_SECONDS = 8    # nothing is started with less time left
NO_TIME = "no time left within --quick"


class Interrupted(Exception):
    pass


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, metavar="FOLDER",
                        default=os.environ.get("MGPU_BIN", ROOT / "build" / "bin"),
                        help="of mgpu-run, mgpu-train, step_bench, rollout_bench "
                             "[MGPU_BIN or build/bin]")
    parser.add_argument("--commit", help="of these programs [that of the checkout]")
    parser.add_argument("--python", action="append", default=[], metavar="PATH",
                        help="a Python with torch and other programs; repeatable [this one]")
    parser.add_argument("--cases", metavar="NAME,...", help="only these [all]; --list prints them")
    parser.add_argument("--peers", default="all", metavar="WHICH",
                        help="all, best (the first that the machine has), none, or names separated "
                             "by commas [all]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each program [3]")
    parser.add_argument("--quick", action="store_true",
                        help="a few cases, one short run each, the first peer: two minutes")
    parser.add_argument("--tiny", action="store_true",
                        help="small shapes, to try the bench itself; works without a GPU")
    parser.add_argument("--bars", type=pathlib.Path, default=HERE / "trainer_bars.json",
                        metavar="FILE", help="release bars [trainer_bars.json]")
    parser.add_argument("--folder", help="for models and outputs, up to 60 GB [the system's]")
    parser.add_argument("--list", action="store_true", help="print the names of cases and programs")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.selected = options.cases.split(",") if options.cases else [
        case.name for case in CASES if case.quick or not options.quick]
    for name in options.selected:
        if name not in BY_NAME:
            parser.error(f"unknown case {name}; --list prints the names")
    options.peer_names = None if options.peers in ("all", "best") else (
        [] if options.peers == "none" else options.peers.split(","))
    for name in options.peer_names or ():
        if all(name != peer.name for case in CASES for peer in case.peers):
            parser.error(f"unknown program {name}; --list prints the names")
    if options.quick or options.tiny:
        options.rounds = 1
    if options.quick and options.peers == "all":
        options.peers = "best"
    return options


def commit_of_checkout():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True,
                              check=True).stdout.strip()
    try:
        changed = git("status", "--porcelain", "--", ":!docs/benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + " with changes" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "not known"


def why_left_out(case, options, gpus):
    if not gpus and not options.tiny:
        return "there is no GPU; --tiny tries the bench without one"
    if case.gpus > len(gpus) and not options.tiny:
        return f"needs {case.gpus} GPUs, found {len(gpus)}"
    absent = [name for name in case.program.needs() if not os.access(options.bin / name, os.X_OK)]
    return f"{' and '.join(absent)} not found in {options.bin}" if absent else None


class Bench:
    """A sitting: the cases, what was measured so far, and what is left out."""

    def __init__(self, options, settings, gpus, pythons):
        self.options, self.settings, self.gpus = options, settings, gpus
        self.began = time.monotonic()
        self.pythons = pythons
        self.results = [CaseResult(BY_NAME[name]) for name in options.selected]
        self.missing = {}  # peer -> the packages that it lacks
        self.chosen = {}   # case -> peers to run
        for result in self.results:
            result.left_out = why_left_out(result.case, options, gpus)
            self.chosen[result.case.name] = [] if result.left_out else self.choose(result.case)

    def choose(self, case):
        present, names = [], self.options.peer_names
        for peer in case.peers:
            if names is not None and peer.name not in names:
                continue
            if peers.python_for(peer, self.pythons):
                present.append(peer)
            else:
                here = set().union(*(python.versions for python in self.pythons))
                self.missing[peer.name] = [one for one in peer.packages if one not in here] or \
                    ["not all in one Python: " + ", ".join(peer.packages)]
        return present[:1] if self.options.peers == "best" else present

    def turns(self):
        """(result, peer or None for ours) in the order of the runs: all programs of a case in turn.
        With --quick ours come first, because only they have bars."""
        cases = [(result, [None, *self.chosen[result.case.name]]) for result in self.results
                 if not result.left_out]
        if self.options.quick:
            return sorted(((result, peer) for result, programs in cases for peer in programs),
                          key=lambda turn: turn[1] is not None)
        return [(result, peer) for result, programs in cases for _ in range(self.options.rounds)
                for peer in programs]

    def time_left(self):
        return QUICK_SECONDS - (time.monotonic() - self.began)

    def measure_all(self):
        for result, peer in self.turns():
            runs = result.ours if peer is None else result.peers.setdefault(peer.name, Runs())
            if runs.failure or result.left_out:
                continue
            if self.options.quick:
                if self.time_left() < LEAST_SECONDS:
                    self.leave_out(result, peer, runs)
                    continue
                self.settings.limit = self.time_left()
            self.measure(result.case, peer, runs)

    def leave_out(self, result, peer, runs):
        if peer is None:
            result.left_out = NO_TIME
        else:
            runs.failure = NO_TIME

    def measure(self, case, peer, runs):
        name = peer.name if peer else "mgpu-train"
        print(f"{self.elapsed():6.0f} s  {case.name}, {name}: ", end="", file=sys.stderr,
              flush=True)
        try:
            with machine.Clocks(self.gpus[0]["index"] if self.gpus else 0) as clocks:
                if peer:
                    python = peers.python_for(peer, self.pythons)
                    runs.versions = python.versions_for(peer)
                    found = peers.measure(peer, python, self.settings)
                else:
                    found = case.program.measure(self.settings)
        except Failed as failure:
            runs.failure = str(failure)
            print(f"failed: {failure}", file=sys.stderr)
            return
        runs.measurements.append(found)
        runs.clocks += [clocks.median] * (clocks.median is not None)
        print(page.number(found.value, case.unit), file=sys.stderr)

    def elapsed(self):
        return time.monotonic() - self.began

    def interrupt(self):
        """Takes out what has no figure yet."""
        for result in self.results:
            result.peers = {name: runs for name, runs in result.peers.items()
                            if runs.measurements or runs.failure}
            if not result.ours.measurements and not result.ours.failure:
                result.left_out = result.left_out or "the bench was interrupted"


def bars_of(options, gpus, known):
    """The bars for this machine, and what the page says about them."""
    if options.tiny:
        return {}, "Small shapes, which try the bench itself: these figures mean nothing."
    kind = gpus[0]["name"] if gpus else "no GPU"
    if kind not in known:
        return {}, f"{options.bars.name} has no release bars for {kind}."
    return known[kind], (f"Release bars: {options.bars.name} for {kind}. A bar is the figure "
                         "of that commit and day with a tolerance; a goal is what is wanted.")


def shown_command(words):
    """The command without the places of programs, which are those of one machine."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--bin", "--python", "--folder", "--bars"):
        parser.add_argument(name, action="append")
    return shlex.join(["tests/bench/trainer_bench.py", *parser.parse_known_args(words)[1]])


def report(bench, options, known, words):
    """Prints the page; returns whether a bar was missed or one of our programs failed."""
    own_bars, note = bars_of(options, bench.gpus, known)
    by_name = {result.case.name: result for result in bench.results}
    checked = [(result, list(checks(result, own_bars.get(result.case.name),
                                    by_name.get(result.case.beside)))) for result in bench.results]
    facts = [("commit", options.commit or commit_of_checkout()), *machine.describe(bench.gpus),
             ("runs", f"{options.rounds} of each program, in turn; medians"
                      + " (--quick)" * options.quick)]
    print(page.page(facts, bench.results, checked, bench.missing, note,
                    shown_command(words)), end="")
    missed = any(check.is_bar and not check.met for _, found in checked for check in found)
    return missed or any(result.ours.failure for result in bench.results)


def interrupted(*_):
    raise Interrupted


def main():
    words = sys.argv[1:]
    options = parse(words)
    if options.list:
        for case in CASES:
            print(f"{case.name}: {case.title}")
            for peer in case.peers:
                print(f"    {peer.name}")
        return 0
    try:
        known = bars.read_bars(options.bars, BY_NAME)
    except bars.BadBars as error:
        print(f"trainer_bench: {error}", file=sys.stderr)
        return 2
    for signo in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signo, interrupted)
    gpus = machine.gpus()
    pythons = [peers.probe(path) for path in options.python or [sys.executable]]
    torch = next((python.path for python in pythons if "torch" in python.versions), None)
    with tempfile.TemporaryDirectory(prefix="trainer-bench-", dir=options.folder) as scratch:
        settings = Settings(options.bin.resolve(), pathlib.Path(scratch), torch,
                            "tiny" if options.tiny else "quick" if options.quick else "full")
        if gpus:
            settings.gpu_gib = int(gpus[0]["memory.total"]) / 1024
        bench = Bench(options, settings, gpus, pythons)
        status = 0
        try:
            bench.measure_all()
        except Interrupted:
            bench.interrupt()
            status = 130
        failed = report(bench, options, known, words)
    return status or int(failed)


if __name__ == "__main__":
    sys.exit(main())
