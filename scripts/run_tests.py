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
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORES = os.cpu_count() or 2
DEADLINE = time.monotonic() + 85 * 60  # of the whole run
FUZZ_SECONDS = 12
FOLDERS = {"release": "build", "asan": "build-asan", "tsan": "build-tsan", "fuzz": "build-fuzz"}
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1",
}


class Outcome:
    """What a step found: how many cases passed and failed, and what it printed."""

    def __init__(self, passed, failed, output=""):
        self.passed, self.failed, self.output = passed, failed, output
        self.seconds = None  # that it took, where somebody else than run_step() has looked

    @classmethod
    def of_check(cls, status, output):
        return cls(int(status == 0), int(status != 0), output)


def run(command, limit, environment=None):
    """Runs a command in a session of its own; gives its status and all it printed.

    At the limit the whole process group is killed and the status is -SIGKILL. The output goes to a
    file: with a pipe, a process that a test left behind would hold us up.
    """
    limit = max(1.0, min(limit, DEADLINE - time.monotonic()))
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(environment or {})},
                                   start_new_session=True)
        late = ""
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            late = f"\nkilled: it took longer than {limit:.0f} s\n"
        output.seek(0)
        return process.returncode, output.read().decode(errors="replace") + late


def check(command, limit=600):
    return Outcome.of_check(*run(command, limit))


def timed(step):
    """What a step that runs beside others comes to."""
    start = time.monotonic()
    outcome = step()
    outcome.seconds = time.monotonic() - start
    return outcome


# --- Builds

BUILDS_ASKED_FOR = set()


def build(preset):
    for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset]):
        status, output = run(command, 45 * 60)
        if status != 0:
            # Ninja prints what it did before; the failure is at the end.
            return Outcome(0, 1, output[-20000:])
    return Outcome(1, 0)


def built(preset):
    """A step that builds the preset, the first time it is asked for."""
    if preset not in BUILDS_ASKED_FOR:
        BUILDS_ASKED_FOR.add(preset)
        yield f"build {preset}", lambda: build(preset)


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
    """Reads the closing lines of Python's unittest. Skipped tests are counted nowhere."""
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
    """ThreadSanitizer finds its shadow memory taken on kernels that randomise more than it knows."""
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
    """The full names of the tests that unittest says have failed, each once."""
    return list(dict.fromkeys(re.findall(r"^(?:FAIL|ERROR): \w+ \((\w+(?:\.\w+)+)\)", output, re.M)))


def with_second_try(folder, step, python):
    """A step of tests that wait for other hosts by the clock. On a machine that stands still for
    seconds one of them may fail; it has to pass alone then, and the line says so."""
    outcome = step()
    names = failed_tests(outcome.output)
    if outcome.failed == 0 or not names or outcome.failed > 3:
        return outcome
    again = unittest_outcome(*run(
        [python, "-B", "-m", "unittest", "-v", *names], 600,
        {**test_environment("release"),
         "PYTHONPATH": f"{ROOT / 'tests' / folder}:{ROOT / 'tests/support'}"}))
    if again.failed:
        return Outcome(outcome.passed, outcome.failed, outcome.output + "again:\n" + again.output)
    print(f"NOTE passed at the second try only: {' '.join(names)}", flush=True)
    return Outcome(outcome.passed + again.passed, 0)


# --- Stages: each yields (name, function that gives an Outcome), in order

def units():
    yield from test_programs("release")


def checks():
    sources = [path for folder in ("launcher", "rendezvous", "runtime", "tests")
               for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".hpp", ".cu", ".cuh")]
    yield "clang-format", lambda: check(["clang-format-19", "--dry-run", "-Werror",
                                         "--ferror-limit=5", *sources])
    yield "layers", lambda: check([sys.executable, "scripts/check_layers.py"])
    yield from built("release")
    yield "one file", lambda: check([sys.executable, "scripts/check_binary.py",
                                     program("release", "mgpu-run")])
    yield from python_tests("build", "release")


def command_line():
    yield from built("release")
    yield from python_tests("cli", "release")


def clients():
    yield from built("release")
    if torch_python():
        yield from python_tests("clients", "release", torch_python())
    else:
        yield "clients", lambda: Outcome(0, 1, "no torch; run scripts/setup.sh --torch\n")


def nodes():
    """Jobs of many nodes, with network namespaces as hosts."""
    yield from built("release")
    if not torch_python():
        yield "nodes", lambda: Outcome(0, 1, "no torch; run scripts/setup.sh --torch\n")
        return
    steps = dict(python_tests("nodes", "release", torch_python()))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        # Those that only sleep do so beside the others, and are told last.
        sleeping = {name: pool.submit(timed, steps.pop(name)) for name in list(steps)
                    if name.endswith("/test_patience.py")}
        steps.update({name: future.result for name, future in sleeping.items()})
        for name, step in steps.items():
            yield name, lambda step=step: with_second_try("nodes", step, torch_python())


def peers():
    """The trainer and its files beside Hugging Face's programs."""
    yield from built("release")
    if not torch_python():
        yield "peers", lambda: Outcome(0, 1, "no torch; run scripts/setup.sh --torch\n")
        return
    steps = dict(python_tests("peers", "release", torch_python()))
    # Their processes wait for each other and for files half of the time. What is timed goes alone.
    alone = {name: steps.pop(name) for name in list(steps) if name.endswith("/test_end_to_end.py")}
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        for name, future in {name: pool.submit(timed, step) for name, step in steps.items()}.items():
            yield name, future.result
    yield from alone.items()


def asan():
    yield from test_programs("asan")
    yield from python_tests("cli", "asan")


def tsan():
    yield from test_programs("tsan")


def included_text(path, seen):
    """The text of a file and of all of ours that it includes, each once."""
    if path in seen or not path.is_file():
        return ""
    seen.add(path)
    text = path.read_text()
    return text + "".join(included_text(ROOT / name, seen)
                          for name in re.findall(r'^#include "(.+)"', text, re.M))


def tidy_one(entry, version):
    """Runs clang-tidy on a file unless it was clean before with the same text and rules."""
    key = hashlib.sha256("\0".join([version, (ROOT / ".clang-tidy").read_text(), entry["command"],
                                    included_text(pathlib.Path(entry["file"]), set())]).encode())
    known_clean = ROOT / "build" / "tidy" / key.hexdigest()
    if known_clean.exists():
        return 0, ""
    status, output = run(["clang-tidy-19", "-p", "build", "--quiet", "--warnings-as-errors=*",
                          entry["file"]], 600)
    if status == 0:
        known_clean.parent.mkdir(exist_ok=True)
        known_clean.touch()
    return status, output


def tidy_all():
    version = run(["clang-tidy-19", "--version"], 60)[1]
    entries = [entry for entry in json.loads((ROOT / "build/compile_commands.json").read_text())
               if pathlib.Path(entry["file"]).relative_to(ROOT).parts[0] in
               ("launcher", "rendezvous")]
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        results = list(pool.map(lambda entry: tidy_one(entry, version), entries))
    return Outcome.of_check(max((abs(status) for status, _ in results), default=1),
                            "".join(output for status, output in results if status != 0))


def tidy():
    yield from built("release")
    yield "clang-tidy", tidy_all


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
    if not (ROOT / "tests/fuzz/CMakeLists.txt").exists():
        return
    yield from built("fuzz")
    paths = sorted((ROOT / "build-fuzz/bin").glob("*_fuzz"))
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        running = [pool.submit(fuzz_one, path) for path in paths]
        for path, future in zip(paths, running):
            yield f"fuzz {path.name}", future.result


STAGES = {"unit": units, "checks": checks, "cli": command_line, "clients": clients,
          "nodes": nodes, "peers": peers, "tidy": tidy,
          "asan": asan, "tsan": tsan, "fuzz": fuzz}
QUICK = ["unit", "checks", "cli", "clients", "nodes", "peers"]


def run_step(name, step):
    start = time.monotonic()
    try:
        outcome = step()
    except Exception as error:  # a step that cannot run has failed; the others still run
        outcome = Outcome(0, 1, f"{type(error).__name__}: {error}\n")
    seconds = time.monotonic() - start if outcome.seconds is None else outcome.seconds
    cases = f", {outcome.passed} cases" if outcome.passed > 1 else ""
    if outcome.failed == 0:
        print(f"PASS {name} ({seconds:.1f} s{cases})", flush=True)
    else:
        print(f"FAIL {name} ({seconds:.1f} s{cases}, {outcome.failed} failed)", flush=True)
        print(outcome.output.rstrip("\n"), flush=True)
    return outcome


def main():
    parser = argparse.ArgumentParser(prog="scripts/test.sh", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE",
                        help=f"{' '.join(STAGES)} [all]; quick: {' '.join(QUICK)}")
    chosen = parser.parse_args().stages or list(STAGES)
    for word in chosen:
        if word not in STAGES and word != "quick":
            parser.error(f"unknown stage {word}; there are {' '.join(STAGES)} and quick")
    names = [name for word in chosen for name in (QUICK if word == "quick" else [word])]
    outcomes = [run_step(name, step) for stage in dict.fromkeys(names)
                for name, step in STAGES[stage]()]
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
