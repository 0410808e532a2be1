#!/usr/bin/env python3
"""Builds, runs every test and check, one line each, and ends with "N passed, N failed".

What fails is shown with its output. The stages are the table at the end; scripts/test.sh sets the
machine up and calls this.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = os.cpu_count() or 2
START = time.monotonic()
DEADLINE = START + 85 * 60  # of the whole run
FUZZ_SECONDS = 12
FOLDERS = {"release": "build", "asan": "build-asan", "tsan": "build-tsan", "fuzz": "build-fuzz"}
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1",
}


class Outcome:
    """The result of a step: how many cases passed and failed, and what it printed."""

    def __init__(self, passed, failed, output=""):
        self.passed, self.failed, self.output = passed, failed, output
        self.seconds = self.cpu = 0.0

    @classmethod
    def of_check(cls, status, output):
        return cls(int(status == 0), int(status != 0), output)


class Spent(threading.local):
    """CPU seconds of the processes that this thread has run."""
    cpu = 0.0


SPENT = Spent()


def run(command, limit, environment=None, nice=0):
    """Runs a command in its own session and returns its exit status and its output.

    At the limit the whole process group is killed and the status is -SIGKILL. The output goes to a
    file: with a pipe, a process that a test leaves behind would block this one.
    """
    limit = max(1.0, min(limit, DEADLINE - time.monotonic()))
    if nice:
        command = ["nice", "-n", str(nice), *command]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(environment or {})},
                                   start_new_session=True)
        late = threading.Event()

        def kill():
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(limit, kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)  # Popen does not wait again
        SPENT.cpu += usage.ru_utime + usage.ru_stime
        output.seek(0)
        text = output.read().decode(errors="replace")
        return process.returncode, text + (
            f"\nkilled: it took longer than {limit:.0f} s\n" if late.is_set() else "")


def check(command, limit=600):
    return Outcome.of_check(*run(command, limit))


def timed(step):
    """Runs a step and notes the seconds and the CPU seconds that it took."""
    start, SPENT.cpu = time.monotonic(), 0.0
    try:
        outcome = step()
    except Exception as error:  # a step that cannot run has failed; the others still run
        outcome = Outcome(0, 1, f"{type(error).__name__}: {error}\n")
    if outcome.seconds == 0:  # else it is that of work in the background, which has its own
        outcome.seconds, outcome.cpu = time.monotonic() - start, SPENT.cpu
    return outcome


# --- Builds

def build(preset, nice=0):
    for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset]):
        status, output = run(command, 45 * 60, nice=nice)
        if status != 0:
            # Ninja prints what it did before; the failure is at the end.
            return Outcome(0, 1, output[-20000:])
    return Outcome(1, 0)


class Background:
    """Work for idle cores: while the tests of a stage wait for timers and for each other, the
    builds of the stages to come run one after the other at the lowest priority."""

    def __init__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._futures = {}

    def start(self, name, step):
        if name not in self._futures:
            self._futures[name] = self._pool.submit(timed, step)

    def take(self, name):
        """The outcome of work that was started, else None; only the first call gets it."""
        future = self._futures.get(name)
        return future.result() if future else None


BACKGROUND = Background()
REPORTED = set()


def background_first(name, step):
    """A step that waits for the same work in the background if that has begun, else does it."""
    return lambda: BACKGROUND.take(name) or step()


def built(preset):
    """A step that builds the preset, the first time it is asked for."""
    if preset not in REPORTED:
        REPORTED.add(preset)
        yield f"build {preset}", background_first(f"build {preset}", lambda: build(preset))


def program(preset, name):
    return ROOT / FOLDERS[preset] / "bin" / name


# --- Test programs

def catch2_outcome(status, output):
    """Reads the closing lines of Catch2, version 2 or 3."""
    cases = re.search(r"^All tests passed \(.* in (\d+) test cases?\)", output, re.M)
    if cases:
        passed, failed = int(cases[1]), 0
    else:
        summary = re.search(r"^test cases:.*", output, re.M)
        numbers = {word: int(n) for n, word in
                   re.findall(r"(\d+) (passed|failed as expected|failed)", summary[0])
                   } if summary else {}
        passed = numbers.get("passed", 0) + numbers.get("failed as expected", 0)
        failed = numbers.get("failed", 0)
    if failed == 0 and (status != 0 or passed == 0):
        failed = 1
        output += f"\nended with status {status} and no failed case\n"
    return Outcome(passed, failed, output)


def unittest_outcome(status, output):
    """Reads the closing lines of Python's unittest. Skipped tests are not counted."""
    ran = sum(int(n) for n in re.findall(r"^Ran (\d+) tests? in ", output, re.M))
    last = (re.findall(r"^(?:OK|FAILED)(?: \(.*\))?$", output, re.M) or [""])[-1]
    numbers = {word: int(n) for word, n in re.findall(r"(\w[a-z ]*)=(\d+)", last)}
    failed = sum(numbers.get(word, 0) for word in ("failures", "errors", "unexpected successes"))
    skipped = numbers.get("skipped", 0)
    if failed == 0 and (status != 0 or ran == 0):
        failed = 1
        output += f"\nended with status {status} after {ran} tests\n"
    return Outcome(max(0, ran - failed - skipped), failed, output)


def test_environment(preset):
    python = torch_python()
    return {
        **SANITIZERS,
        "MGPU_BUILD": str(ROOT / FOLDERS[preset]),
        "MGPU_RUN": str(program(preset, "mgpu-run")),
        "MGPU_SANITIZED": "" if preset == "release" else preset,
        "MGPU_TORCH_PYTHON": python,
    }


@functools.lru_cache(maxsize=None)
def torch_python():
    status, output = run([ROOT / "scripts/torch_python.sh"], 60)
    return output.strip() if status == 0 else ""


@functools.lru_cache(maxsize=None)
def without_randomised_addresses():
    """ThreadSanitizer's shadow memory may be taken on kernels that randomise more than it expects."""
    return ["setarch", "-R"] if run(["setarch", "-R", "true"], 10)[0] == 0 else []


def test_programs(preset):
    yield from built(preset)
    prefix = without_randomised_addresses() if preset == "tsan" else []
    for path in sorted((ROOT / FOLDERS[preset] / "bin").glob("test_*")):
        yield f"{preset} {path.name}", lambda path=path: catch2_outcome(
            *run([*prefix, path], 300, test_environment(preset)))


def python_tests(folder, preset, python=sys.executable):
    for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
        command = [python, "-B", "-m", "unittest", "discover", "-v", "-s", path.parent,
                   "-p", path.name]
        yield f"{preset} {folder}/{path.name}", lambda command=command: unittest_outcome(
            *run(command, 900, {**test_environment(preset), "PYTHONPATH": ROOT / "tests/support"}))


def failed_tests(output):
    """The full names of the tests that unittest reports as failed, each once."""
    return list(dict.fromkeys(re.findall(r"^(?:FAIL|ERROR): \w+ \((\w+(?:\.\w+)+)\)", output, re.M)))


QUIET = threading.Lock()  # held by second tries: one at a time


def with_second_try(folder, step, python, preset="release"):
    """A step of tests that depend on time-outs. On a machine that stands still for seconds one of
    them may fail; it then has to pass alone, and a line reports that."""
    outcome = step()
    names = failed_tests(outcome.output)
    if outcome.failed == 0 or not names or outcome.failed > 3:
        return outcome
    with QUIET:
        again = unittest_outcome(*run(
            [python, "-B", "-m", "unittest", "-v", *names], 600,
            {**test_environment(preset),
             "PYTHONPATH": f"{ROOT / 'tests' / folder}:{ROOT / 'tests/support'}"}))
    if again.failed:
        return Outcome(outcome.passed, outcome.failed, outcome.output + "again:\n" + again.output)
    print(f"NOTE passed at the second try only: {' '.join(names)}", flush=True)
    return Outcome(outcome.passed + again.passed, 0)


# --- Stages: each yields (name, function that returns an Outcome). The steps of a stage run beside
# each other, as many at a time as the table at the end says, after those that build and before
# those named in ALONE, which measure time.

ALONE = ("peers/test_end_to_end.py", "peers/test_rewards.py")


def units():
    yield from test_programs("release")


def checks():
    sources = [path for folder in ("launcher", "rendezvous", "runtime", "tests")
               for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".hpp", ".cu", ".cuh")]
    yield from built("release")
    yield "clang-format", lambda: check(["clang-format-19", "--dry-run", "-Werror",
                                         "--ferror-limit=5", *sources])
    yield "layers", lambda: check([sys.executable, "scripts/check_layers.py"])
    yield "one file", lambda: check([sys.executable, "scripts/check_binary.py",
                                     program("release", "mgpu-run")])
    yield from python_tests("build", "release")


def with_torch(folder, second_try):
    """The Python tests of a folder that need torch."""
    yield from built("release")
    if not torch_python():
        yield folder, lambda: Outcome(0, 1, "no torch; run scripts/setup.sh --torch\n")
        return
    for name, step in python_tests(folder, "release", torch_python()):
        if second_try:
            yield name, lambda step=step: with_second_try(folder, step, torch_python())
        else:
            yield name, step


def command_line():
    yield from built("release")
    for name, step in python_tests("cli", "release"):
        yield name, lambda step=step: with_second_try("cli", step, sys.executable)


def clients():
    """Unmodified PyTorch programs under mgpu-run."""
    yield from with_torch("clients", second_try=True)


def nodes():
    """Multi-node jobs, with network namespaces as hosts."""
    yield from with_torch("nodes", second_try=True)


def peers():
    """The trainer and its files beside Hugging Face's programs."""
    yield from with_torch("peers", second_try=False)


def asan():
    yield from test_programs("asan")
    for name, step in python_tests("cli", "asan"):
        yield name, lambda step=step: with_second_try("cli", step, sys.executable, "asan")


def tsan():
    yield from test_programs("tsan")


# --- clang-tidy

def included_text(path, seen):
    """The text of a file and of all files of this repository that it includes, each once."""
    if path in seen or not path.is_file():
        return ""
    seen.add(path)
    text = path.read_text()
    return text + "".join(included_text(ROOT / name, seen)
                          for name in re.findall(r'^#include "(.+)"', text, re.M))


def tidy_cache():
    """Where results are kept: beside ccache's, so that a fresh clone finds those of the last run."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(os.environ.get("CCACHE_DIR") or home) / "mgpu-tidy"


def tidy_command(entry):
    """The compiler's arguments as clang-tidy is to see them: clang cannot read gcc's precompiled
    headers, and every file includes what it uses."""
    words = shlex.split(entry["command"])
    start = next(n for n, word in enumerate(words) if re.search(r"(c|g|clang)\+\+(-\d+)?$", word))
    words = words[start:]
    kept = []
    for word in words:
        if word.endswith("cmake_pch.hxx") and kept and kept[-1] == "-include":
            kept.pop()
        elif word != "-Winvalid-pch":
            kept.append(word)
    return kept


# These look at the main file only, so they run on each source that has a line for them; all others
# run on the files that the build made of several sources.
MAIN_FILE_CHECKS = "misc-unused-alias-decls,misc-unused-using-decls,bugprone-suspicious-include"
MAIN_FILE_LINE = re.compile(
    r"^\s*(using (?!namespace\b)[\w:]+;|namespace \w+ =|#\s*include .*\.c)", re.M)


def is_unity(entry):
    return "/Unity/" in entry["file"]


def checks_for(entry):
    if entry.get("part"):
        return "-*," + MAIN_FILE_CHECKS
    return "-bugprone-suspicious-include" if is_unity(entry) else ""


def with_parts(entry):
    """A file of compile_commands.json, and the sources of which it consists if it is several."""
    yield entry
    if is_unity(entry):
        for name in re.findall(r'^#include "(.+)"', pathlib.Path(entry["file"]).read_text(), re.M):
            if not MAIN_FILE_LINE.search(pathlib.Path(name).read_text()):
                continue
            yield {**entry, "file": name, "part": True,
                   "arguments": [name if word == entry["file"] else word
                                 for word in entry["arguments"]]}


def tidy_one(entry, version, folder):
    """Runs clang-tidy on a file unless it was clean before with the same text and rules."""
    text = [version, (ROOT / ".clang-tidy").read_text(), " ".join(entry["arguments"]),
            included_text(pathlib.Path(entry["file"]), set())]
    key = hashlib.sha256("\0".join(part.replace(str(ROOT), "") for part in text).encode())
    known_clean = tidy_cache() / key.hexdigest()
    if known_clean.exists():
        return 0, ""
    status, output = run(["clang-tidy-19", "-p", folder, "--quiet", "--warnings-as-errors=*",
                          f"--checks={checks_for(entry)}", entry["file"]], 600, nice=19)
    if status == 0:
        known_clean.parent.mkdir(parents=True, exist_ok=True)
        known_clean.touch()
    return status, output


def is_tidied(file):
    """Whether clang-tidy runs on this file of compile_commands.json: sources of the launcher and of
    rendezvous, which the build compiles some at a time, in files of its own."""
    parts = pathlib.Path(file).relative_to(ROOT).parts
    parts = parts[1:] if parts[0] == "build" else parts
    return parts[0] in ("launcher", "rendezvous") and "cmake_pch" not in parts[-1]


def tidy_all():
    version = run(["clang-tidy-19", "--version"], 60)[1]
    folder = ROOT / "build" / "tidy"
    folder.mkdir(exist_ok=True)
    entries = [{"directory": entry["directory"], "file": entry["file"],
                "arguments": tidy_command(entry)}
               for entry in json.loads((ROOT / "build/compile_commands.json").read_text())
               if is_tidied(entry["file"])]
    entries = [part for entry in entries for part in with_parts(entry)]
    (folder / "compile_commands.json").write_text(json.dumps(entries))

    def one(entry):
        before = SPENT.cpu
        status, output = tidy_one(entry, version, folder)
        return status, output, SPENT.cpu - before

    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        results = list(pool.map(one, entries))
    SPENT.cpu += sum(cpu for *_, cpu in results)
    return Outcome.of_check(max((abs(status) for status, *_ in results), default=1),
                            "".join(output for status, output, _ in results if status != 0))


def tidy():
    yield from built("release")
    yield "clang-tidy", background_first("clang-tidy", tidy_all)


# --- Fuzzing

def fuzz_one(path):
    name = path.name.removesuffix("_fuzz")
    found = ROOT / "build-fuzz" / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    corpus = ROOT / "tests" / "fuzz" / "corpus" / name
    dictionary = ROOT / "tests" / "fuzz" / f"{name}.dict"
    return Outcome.of_check(*run(
        [path, f"-max_total_time={FUZZ_SECONDS}", "-timeout=10", "-rss_limit_mb=2048",
         f"-artifact_prefix={ROOT / 'build-fuzz'}/{name}-", "-print_final_stats=1",
         *([f"-dict={dictionary}"] if dictionary.exists() else []),
         found, *([corpus] if corpus.is_dir() else [])],
        FUZZ_SECONDS + 120, SANITIZERS))


def fuzz():
    yield from built("fuzz")
    for path in sorted((ROOT / "build-fuzz/bin").glob("*_fuzz")):
        yield f"fuzz {path.name}", lambda path=path: fuzz_one(path)


# Stage: its steps, and how many of them run at a time. Tests of many nodes mostly sleep, each in
# its own namespaces.
STAGES = {"unit": (units, CORES), "checks": (checks, CORES), "cli": (command_line, CORES),
          "clients": (clients, CORES), "nodes": (nodes, 2 * CORES), "peers": (peers, CORES),
          "asan": (asan, CORES), "tsan": (tsan, CORES), "fuzz": (fuzz, CORES), "tidy": (tidy, 1)}
QUICK = ["unit", "checks", "cli", "clients", "nodes", "peers"]


def report(name, outcome):
    cases = f", {outcome.passed} cases" if outcome.passed > 1 else ""
    times = f"{outcome.seconds:.1f} s, CPU {outcome.cpu:.1f} s"
    if outcome.failed == 0:
        print(f"PASS {name} ({times}{cases})", flush=True)
    else:
        print(f"FAIL {name} ({times}{cases}, {outcome.failed} failed)", flush=True)
        print(outcome.output.rstrip("\n"), flush=True)


class Durations:
    """How long each step took the last time: the longest begin first."""

    def __init__(self):
        self._path = ROOT / "build" / "test_seconds.json"
        try:
            self._seconds = json.loads(self._path.read_text())
        except (OSError, ValueError):
            self._seconds = {}

    def of(self, name):
        return self._seconds.get(name, 1e9)

    def keep(self, name, outcome):
        self._seconds[name] = round(outcome.seconds, 1)

    def save(self):
        if self._path.parent.is_dir():
            self._path.write_text(json.dumps(self._seconds, indent=1, sort_keys=True))


def run_stage(stage, durations):
    """Runs a stage and returns its outcomes, which it has printed."""
    source, at_a_time = STAGES[stage]
    outcomes, steps = [], []

    def finish(name, outcome):
        report(name, outcome)
        durations.keep(name, outcome)
        outcomes.append(outcome)

    # Builds are done while the steps are listed: the steps that follow look for what they made.
    for name, step in source():
        if name.startswith("build "):
            finish(name, timed(step))
        else:
            steps.append((name, step))
    alone = [pair for pair in steps if pair[0].endswith(ALONE)]
    beside = sorted((pair for pair in steps if pair not in alone),
                    key=lambda pair: -durations.of(pair[0]))
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        running = {pool.submit(timed, step): name for name, step in beside}
        for future in concurrent.futures.as_completed(running):
            finish(running[future], future.result())
    for name, step in alone:
        finish(name, timed(step))
    return outcomes


def start_background(stages):
    """Begins what later stages need, as soon as the release is built."""
    for preset in ("asan", "tsan", "fuzz"):
        if preset in stages:
            BACKGROUND.start(f"build {preset}", lambda preset=preset: build(preset, nice=19))
    if "tidy" in stages:
        BACKGROUND.start("clang-tidy", tidy_all)


def main():
    parser = argparse.ArgumentParser(prog="scripts/test.sh", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE",
                        help=f"{' '.join(STAGES)} [all]; quick: {' '.join(QUICK)}")
    chosen = parser.parse_args().stages or list(STAGES)
    for word in chosen:
        if word not in STAGES and word != "quick":
            parser.error(f"unknown stage {word}; there are {' '.join(STAGES)} and quick")
    names = list(dict.fromkeys(
        name for word in chosen for name in (QUICK if word == "quick" else [word])))
    durations, outcomes, rows = Durations(), [], []
    if any(name not in ("asan", "tsan", "fuzz") for name in names):
        start = time.monotonic()
        for name, step in built("release"):
            outcome = timed(step)
            report(name, outcome)
            outcomes.append(outcome)
        rows.append(("build release", time.monotonic() - start, outcomes))
        start_background(names)
    for stage in names:
        start = time.monotonic()
        found = run_stage(stage, durations)
        rows.append((stage, time.monotonic() - start, found))
        outcomes += found
    durations.save()
    print("stage           minutes   CPU  cases")
    for name, seconds, found in rows:
        print(f"{name:15} {seconds / 60:7.1f} {sum(one.cpu for one in found) / 60:5.1f}"
              f" {sum(one.passed for one in found):6}")
    print(f"{'all':15} {(time.monotonic() - START) / 60:7.1f}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
