#!/usr/bin/env python3
"""Builds, runs every test and check, one line each, and ends with "N passed, N failed".

What fails is shown with its output. The stages are the table at the end; scripts/test.sh sets the
machine up and calls this.
"""

import argparse
import concurrent.futures
import functools
import json
import re
import sys
import threading
import time

from testing.clang_tidy import tidy_all
from testing.forked_unittest import ForkedUnittest
from testing.results import catch2_outcome, failed_tests, unittest_outcome
from testing.steps import CORES, ROOT, START, Background, Outcome, check, run, timed

BOOTED = time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)
FUZZ_SECONDS = 12
# The longest inputs. With 64 KiB, deep nesting and growing output are noticed; large files may be
# longer. A pattern of a tokenizer may take a time quadratic in the text, and answers of more than
# 4,000 bytes are not read.
FUZZ_BYTES = {"host_files": 1 << 18, "model_config": 1 << 18, "safetensors": 1 << 20,
              "training_files": 1 << 20, "tokenizer": 1 << 14, "result": 1 << 14}
FOLDERS = {"release": "build", "asan": "build-asan", "tsan": "build-tsan", "fuzz": "build-fuzz"}
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1",
}


# --- Builds

def build(preset, nice=0):
    for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset]):
        status, output = run(command, 45 * 60, nice=nice)
        if status != 0:
            # Ninja prints what it did before; the failure is at the end.
            return Outcome(0, 1, output[-20000:])
    return Outcome(1, 0)


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

def test_environment(preset):
    python = torch_python()
    return {
        **SANITIZERS,
        "MGPU_BUILD": str(ROOT / FOLDERS[preset]),
        "MGPU_RUN": str(program(preset, "mgpu-run")),
        "MGPU_SANITIZED": "" if preset == "release" else preset,
        "MGPU_TORCH_PYTHON": python,
        # Threads of OpenMP that spin at barriers starve the other tests of the cores, and each other.
        "OMP_WAIT_POLICY": "passive",
    }


@functools.lru_cache(maxsize=None)
def torch_python():
    status, output = run([ROOT / "scripts/torch_python.sh"], 60)
    return output.strip() if status == 0 else ""


@functools.lru_cache(maxsize=None)
def without_randomised_addresses():
    """ThreadSanitizer's shadow memory may be taken on kernels that randomise more than it expects."""
    return ["setarch", "-R"] if run(["setarch", "-R", "true"], 10)[0] == 0 else []


QUIET = threading.Lock()  # held by second tries: one at a time
# A defect that a sanitizer has seen once is there, whatever the second run says.
REPORT = re.compile(r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer|: runtime error: ")


def with_second_run(name, step):
    """A step of Catch2 tests, some of which wait for other threads and processes. After few failures
    the whole program runs again while no other second try does, and a line reports that."""
    outcome = step()
    if outcome.failed == 0 or outcome.failed > 3 or REPORT.search(outcome.output):
        return outcome
    with QUIET:
        again = step()
    if again.failed:
        return Outcome(again.passed, again.failed, outcome.output + "again:\n" + again.output)
    print(f"NOTE {name} passed at the second try only:\n{outcome.output}", flush=True)
    return again


def test_programs(preset):
    yield from built(preset)
    prefix = without_randomised_addresses() if preset == "tsan" else []
    for path in sorted((ROOT / FOLDERS[preset] / "bin").glob("test_*")):
        yield f"{preset} {path.name}", lambda path=path: with_second_run(
            path.name, lambda: catch2_outcome(*run([*prefix, path], 300, test_environment(preset))))


FORKED = ForkedUnittest()


def run_unittest(words, limit, environment, python, preset):
    """Runs `python -m unittest WORDS`. Python with torch has imported it already."""
    environment = {**test_environment(preset), **environment}
    if python != sys.executable:
        return unittest_outcome(*FORKED.run(python, words, limit, environment))
    return unittest_outcome(*run([python, "-B", "-m", "unittest", *words], limit, environment))


def python_tests(folder, preset, python=sys.executable):
    for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
        words = ["discover", "-v", "-s", path.parent, "-p", path.name]
        yield f"{preset} {folder}/{path.name}", lambda words=words: run_unittest(
            words, 900, {"PYTHONPATH": ROOT / "tests/support"}, python, preset)


def with_second_try(folder, step, python, preset="release"):
    """A step of tests that start processes. On a machine that stands still for seconds one of them
    may fail; it then has to pass alone, and a line reports that."""
    outcome = step()
    names = failed_tests(outcome.output)
    if outcome.failed == 0 or not names or outcome.failed > 3:
        return outcome
    with QUIET:
        again = run_unittest(
            ["-v", *names], 600,
            {"PYTHONPATH": f"{ROOT / 'tests' / folder}:{ROOT / 'tests/support'}"}, python, preset)
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
    yield "requirements", lambda: check([sys.executable, "scripts/check_requirements.py"])
    yield "one file", lambda: check([sys.executable, "scripts/check_binary.py",
                                     program("release", "mgpu-run")])
    yield from python_tests("build", "release")


def with_torch(folder, wanted=lambda file: True):
    """The Python tests of a folder that need torch."""
    yield from built("release")
    if not torch_python():
        yield folder, lambda: Outcome(0, 1, "no torch; run scripts/setup.sh --torch\n")
        return
    for name, step in python_tests(folder, "release", torch_python()):
        if not wanted(name.split("/")[-1]):
            continue
        yield name, lambda step=step: with_second_try(folder, step, torch_python())


def command_line():
    yield from built("release")
    for name, step in python_tests("cli", "release"):
        yield name, lambda step=step: with_second_try("cli", step, sys.executable)


def clients():
    """Unmodified PyTorch programs under mgpu-run."""
    yield from with_torch("clients")


def nodes():
    """Multi-node jobs, with network namespaces as hosts."""
    yield from with_torch("nodes")


def soak():
    """Random faults in the quickstart job and in a PyTorch job."""
    yield from with_torch("soak")


# Files of tests/peers that start many trainings or long ones. They take two thirds of its time.
TRAINING = {f"test_{name}.py" for name in (
    "adamw_8bit", "background_save", "bad_recipes", "chat_template", "end_to_end", "fp16",
    "from_scratch", "grpo", "grpo_recipes", "invariance", "recommender", "resume",
    "reward_models", "reward_sandbox", "rewards", "rollout", "rollout_server", "streaming",
    "trainer_bench")}


def peers():
    """The trainer and its files beside Hugging Face's programs."""
    yield from with_torch("peers", wanted=lambda file: file not in TRAINING)


def training():
    """The files of tests/peers that take long."""
    yield from with_torch("peers", wanted=lambda file: file in TRAINING)


def asan():
    yield from test_programs("asan")
    for name, step in python_tests("cli", "asan"):
        yield name, lambda step=step: with_second_try("cli", step, sys.executable, "asan")


def tsan():
    yield from test_programs("tsan")


# --- clang-tidy

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
        [path, f"-max_total_time={FUZZ_SECONDS}", "-timeout=10", "-rss_limit_mb=1536",
         "-malloc_limit_mb=512", f"-max_len={FUZZ_BYTES.get(name, 1 << 16)}", "-len_control=0",
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
          "clients": (clients, CORES), "nodes": (nodes, 2 * CORES),
          "soak": (soak, CORES), "peers": (peers, CORES), "training": (training, CORES),
          "asan": (asan, CORES), "tsan": (tsan, CORES), "fuzz": (fuzz, CORES), "tidy": (tidy, 1)}
QUICK = ["unit", "checks", "cli", "clients", "nodes", "soak", "peers"]


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
    parser.add_argument("--parse-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = options.stages or list(STAGES)
    for word in chosen:
        if word not in STAGES and word != "quick":
            parser.error(f"unknown stage {word}; there are {' '.join(STAGES)} and quick")
    if options.parse_only:
        return 0
    names = list(dict.fromkeys(
        name for word in chosen for name in (QUICK if word == "quick" else [word])))
    durations, outcomes, rows = Durations(), [], []
    if any(name not in ("asan", "tsan", "fuzz") for name in names):
        start = time.monotonic()
        for name, step in built("release"):
            outcome = timed(step)
            report(name, outcome)
            outcomes.append(outcome)
        rows.append(("build release", time.monotonic() - start, list(outcomes)))
        start_background(names)
    for stage in names:
        start = time.monotonic()
        found = run_stage(stage, durations)
        rows.append((stage, time.monotonic() - start, found))
        outcomes += found
    durations.save()
    print(f"{CORES} cores; the machine had been up for"
          f" {(START - BOOTED) / 60:.0f} minutes when this began")
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
