"""tests/bench/trainer_bench.py with scripts in the place of the programs, of the other programs'
Python and of nvidia-smi: the page, the bars, and what is left out."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
sys.path.insert(0, str(BENCH))
import trainer_bench  # noqa: E402
from training import bars, jobs, machine, peers, results  # noqa: E402
from training.cases import BY_NAME, CASES  # noqa: E402
from training.settings import Failed, Measurement, Settings, cause_of, run  # noqa: E402

LIMIT = 60
STEP_BENCH = """#!/bin/sh
echo "ours $*" >>"{log}"
n=$(grep -c ^ours "{log}")
rate=$(echo {rates} | cut -d ' ' -f "$n")
timeout 20 sh -c 'until [ -s "{log}.sampled" ]; do sleep 0.01; done'
echo "step 0 loss 12 norm 1"
echo "$1 world 1 zero 0 lora 0 mb 4: $rate tok/s per GPU, 490.4 TFLOP/s, 0.163 s/step, peak \
38.90 GiB allocated 40.00 reserved"
"""
# Names its packages when it is asked, makes the folder of a model, and measures.
PYTHON = """#!/bin/sh
case "$1$3" in
  -c*) echo 'RESULT {versions}' ;;
  *) echo "peer $*" >>"{log}"; {body} ;;
esac
"""
SMI = """#!/bin/sh
case "$*" in
  *-lms*) echo "345, 0"; echo "1500, 99"; echo "1520, 98"; echo yes >"{log}.sampled"
          exec sleep 1000 ;;
  *) echo "{gpu}, 580.159.04, 143771, 1024, 1980, 700.00" ;;
esac
"""
HUGGING_FACE = {"torch": "2.11.0", "transformers": "5.17.0"}


class Stand(unittest.TestCase):
    """A machine of scripts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.log = self.dir / "log"
        self.gpu("NVIDIA H200")
        self.ours(50000, 50100, 50200)
        self.script("bin/mgpu-train", "#!/bin/sh\necho '  allocated         39.29 GiB'\n")
        self.bars({"full-1.5B-mb4": self.bar()})
        self.peer("echo 'RESULT {\"value\": 45000, \"peak_gib\": 32.7}'")

    def script(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def gpu(self, name):
        self.script("path/nvidia-smi", SMI.format(log=self.log, gpu=name))

    def ours(self, *rates):
        self.script("bin/step_bench",
                    STEP_BENCH.format(log=self.log, rates=" ".join(map(str, rates))))

    def peer(self, body, **versions):
        self.python = self.script("python", PYTHON.format(
            log=self.log, body=body, versions=json.dumps({**HUGGING_FACE, **versions})))

    def bar(self, **others):
        return {"today": 50000, "commit": "abc", "date": "2026-11-28", **others}

    def bars(self, cases, gpu="NVIDIA H200"):
        self.bars_file = self.dir / "bars.json"
        self.bars_file.write_text(json.dumps({
            "tolerance_percent": 3, "plan_within_percent": 3, "times_best_peer": 1.15,
            "gpus": {gpu: cases}}))

    def environment(self):
        return {**os.environ, "PATH": f"{self.dir}/path:{os.environ['PATH']}",
                "CUDA_VISIBLE_DEVICES": "0"}

    def command(self, *options):
        return [sys.executable, "-B", BENCH / "trainer_bench.py", "--bin", self.dir / "bin",
                "--bars", self.bars_file, "--python", self.python, "--folder", self.dir,
                "--commit", "abc1234", "--cases", "full-1.5B-mb4", *options]

    def bench(self, *options):
        done = subprocess.run(self.command(*options), capture_output=True, text=True,
                              timeout=LIMIT, env=self.environment())
        self.assertNotIn("Traceback", done.stderr)
        return done

    def assert_rows(self, page, *rows):
        for row in rows:
            self.assertIn(f"| {row} |\n", page)


class Page(Stand):
    def test_it_has_medians_ratios_memory_beside_the_plan_and_clocks(self):
        done = self.bench()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_rows(
            done.stdout, "commit | abc1234", "GPUs | 1 x NVIDIA H200",
            "driver, limits | 580.159.04; at most 1980 MHz, 700.00 W",
            "GPU memory in use before | 1.0 GiB", "runs | 3 of each program, in turn; medians",
            "full 1.5B, micro-batch 4 | 50,100 tok/s | 0.4 % | 490 | 38.90 GiB | "
            "39.29 GiB (+1.0 %) | 1510 MHz",
            "full 1.5B, micro-batch 4 | release bar | 50,100 tok/s | "
            ">= 48,500 tok/s (abc, 2026-11-28) | yes",
            "full 1.5B, micro-batch 4 | Hugging Face + torch.compile | "
            "torch 2.11.0, transformers 5.17.0 | 45,000 tok/s | 32.70 GiB | 1.11 x")

    def test_programs_take_turns(self):
        self.bench("--peers", "Hugging Face + torch.compile,Hugging Face", "--rounds", "2")
        self.assertEqual([line.split()[0] for line in self.log.read_text().splitlines()],
                         ["ours", "peer", "peer"] * 2)

    def test_packages_that_are_missing_are_listed(self):
        page = self.bench().stdout
        self.assertIn("- Hugging Face + Liger kernels: not on this machine (liger_kernel)\n", page)
        self.assertIn("- Unsloth: not on this machine (unsloth)\n", page)
        self.peer("echo 'RESULT {\"value\": 1}'", liger_kernel="0.8.5")
        page = self.bench("--rounds", "1").stdout
        self.assertNotIn("Liger kernels: not", page)
        self.assertIn("| Hugging Face + Liger kernels | torch 2.11.0, transformers 5.17.0, "
                      "liger_kernel 0.8.5 | 1 tok/s | - |", page)

    def test_the_first_program_that_the_machine_has_is_the_best_one(self):
        page = self.bench("--peers", "best", "--rounds", "1").stdout
        self.assertIn("torch.compile |", page)
        self.assertNotIn("| Hugging Face |", page)

    def test_a_program_of_others_that_fails_is_a_row_and_is_not_run_again(self):
        self.peer("echo 'CUDA out | of memory' >&2; exit 1")
        done = self.bench("--peers", "best")
        self.assertEqual(done.returncode, 0)
        self.assertIn(r"| failed: python ended with status 1: CUDA out \| of memory | - | - |",
                      done.stdout)
        self.assertEqual(self.log.read_text().count("peer -B"), 1)

    def test_the_error_of_a_worker_is_shown_and_not_the_summary_of_its_launcher(self):
        self.assertEqual(cause_of("Traceback\n[rank0]: ImportError: no x\n\n"
                                  "torch.distributed.ChildFailedError:\n==\n worker FAILED\n==\n"),
                         "[rank0]: ImportError: no x")
        self.assertEqual(cause_of("a\nmgpu-run: rank 0 failed\n\n---\n"), "mgpu-run: rank 0 failed")
        self.assertEqual(cause_of(" \n"), "no message")

    def test_the_command_has_no_places_of_this_machine(self):
        self.assertTrue(self.bench("--peers", "none").stdout.endswith(
            "    tests/bench/trainer_bench.py --commit abc1234 --cases full-1.5B-mb4 "
            "--peers none\n"))

    def test_a_bench_that_is_stopped_prints_what_it_has(self):
        self.peer("echo started >\"$0.started\"; exec sleep 1000")
        job = subprocess.Popen(self.command("--rounds", "1", "--peers", "best"), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env=self.environment())
        self.addCleanup(job.kill)
        deadline = time.monotonic() + LIMIT
        while not pathlib.Path(f"{self.python}.started").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        page, _ = job.communicate(timeout=LIMIT)
        self.assertEqual(job.returncode, 130)
        self.assertIn("| full 1.5B, micro-batch 4 | 50,000 tok/s |", page)
        self.assertNotIn("torch.compile", page)


class Copy(Stand):
    def test_programs_and_a_few_files_are_enough(self):
        copy = self.dir / "copy"
        for name in ("tests/bench", "docs/examples/tokenizer"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("tests/gpu/random_model.py", "scripts/bench.sh", "scripts/torch_python.sh"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        done = subprocess.run(
            [copy / "scripts/bench.sh", "--trainer", "--quick", "--cases", "full-1.5B-mb4",
             "--bars", self.bars_file], capture_output=True, text=True, timeout=LIMIT,
            env={**self.environment(), "MGPU_BIN": str(self.dir / "bin"),
                 "GIT_CEILING_DIRECTORIES": str(self.dir)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| commit | not known |", done.stdout)
        self.assertIn("(abc, 2026-11-28) | yes |", done.stdout)


class ReleaseBars(Stand):
    def test_a_bar_that_is_missed_marks_its_row_and_the_exit_status(self):
        self.ours(48499, 48400, 48600)
        done = self.bench("--peers", "none")
        self.assertEqual(done.returncode, 1)
        self.assert_rows(done.stdout, "full 1.5B, micro-batch 4 | release bar | 48,499 tok/s | "
                                      ">= 48,500 tok/s (abc, 2026-11-28) | **no: regression**")

    def test_a_goal_that_is_not_reached_is_no_error(self):
        self.bars({"full-1.5B-mb4": self.bar(goal=55000, times_best_peer=1.2)})
        done = self.bench("--peers", "best")
        self.assertEqual(done.returncode, 0)
        self.assert_rows(
            done.stdout,
            "full 1.5B, micro-batch 4 | goal | 50,100 tok/s | >= 55,000 tok/s | not yet",
            "full 1.5B, micro-batch 4 | beside Hugging Face + torch.compile | 1.11 x | "
            ">= 1.20 x | not yet",
            "full 1.5B, micro-batch 4 | plan of memory | 1.00 % off | <= 3.00 % off | yes")

    def test_more_memory_than_before_is_a_regression(self):
        self.bars({"full-1.5B-mb4": self.bar(memory_gib=37, memory_goal_gib=39)})
        done = self.bench("--peers", "none")
        self.assertEqual(done.returncode, 1)
        self.assert_rows(
            done.stdout,
            "full 1.5B, micro-batch 4 | memory | 38.90 GiB | <= 38.11 GiB (abc, 2026-11-28) | "
            "**no: regression**",
            "full 1.5B, micro-batch 4 | memory goal | 38.90 GiB | <= 39.00 GiB | yes")

    def test_a_kind_of_gpu_without_bars_is_measured_all_the_same(self):
        self.gpu("NVIDIA H200 NVL")
        self.ours(1, 1, 1)
        done = self.bench("--peers", "none")
        self.assertEqual(done.returncode, 0)
        self.assertIn("bars.json has no release bars for NVIDIA H200 NVL.\n", done.stdout)
        self.assertNotIn("## Release bars", done.stdout)

    def test_a_program_of_ours_that_fails_fails_the_run(self):
        self.script("bin/step_bench", "#!/bin/sh\necho 'no kernel image' >&2\nexit 3\n")
        done = self.bench("--peers", "none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("- full 1.5B, micro-batch 4: failed: step_bench ended with status 3: "
                      "no kernel image\n", done.stdout)

    def test_output_without_a_figure_is_a_failure(self):
        self.script("bin/step_bench", "#!/bin/sh\necho 'step 0 loss 12 norm 1'\n")
        self.assertIn("failed: step_bench printed no rate",
                      self.bench("--peers", "none").stdout)


class LeftOut(Stand):
    def test_cases_that_need_more_gpus_or_other_programs_are_listed(self):
        done = self.bench("--cases", "full-1.5B-mb4-2gpu,decode-64,new-lengths-1.5B")
        self.assertEqual(done.returncode, 0)
        self.assertIn("ZeRO 1, 2 GPUs: needs 2 GPUs, found 1\n", done.stdout)
        self.assertIn(f"64 sequences: rollout_bench not found in {self.dir}/bin\n", done.stdout)
        self.assertIn(f"a micro-batch: mgpu-run not found in {self.dir}/bin\n", done.stdout)

    def test_without_a_gpu_nothing_is_measured_but_with_small_shapes(self):
        self.script("path/nvidia-smi", "#!/bin/sh\nexit 9\n")
        done = self.bench("--peers", "none")
        self.assertEqual(done.returncode, 0)
        self.assertIn("there is no GPU; --tiny tries the bench without one\n", done.stdout)
        self.assertFalse(self.log.exists())

    def test_a_case_or_program_that_is_not_known_is_an_error(self):
        for options, word in ((("--cases", "full"), "unknown case full"),
                              (("--peers", "jax"), "unknown program jax"),
                              (("--rounds", "0"), "--rounds must be at least 1")):
            done = self.bench(*options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr.splitlines()[-1])

    def test_quick_measures_ours_first_and_starts_nothing_after_two_minutes(self):
        options = trainer_bench.parse(["--quick", "--cases", "full-1.5B-mb4,full-0.5B-mb8",
                                       "--bin", str(self.dir / "bin")])
        pythons = [peers.Python("python", HUGGING_FACE)]
        bench = trainer_bench.Bench(options, None, [{"name": "a GPU", "index": 0}], pythons)
        self.assertEqual([(result.case.name, peer and peer.name) for result, peer in bench.turns()],
                         [("full-1.5B-mb4", None), ("full-0.5B-mb8", None),
                          ("full-1.5B-mb4", "Hugging Face + torch.compile"),
                          ("full-0.5B-mb8", "Hugging Face + torch.compile")])
        with mock.patch.object(bench, "time_left", lambda: trainer_bench.LEAST_SECONDS - 1), \
                mock.patch.object(bench, "measure") as measure:
            bench.measure_all()
        measure.assert_not_called()
        self.assertEqual({result.left_out for result in bench.results}, {trainer_bench.NO_TIME})


class BadBars(Stand):
    def test_a_file_that_cannot_be_used_is_one_line(self):
        good = json.loads(self.bars_file.read_text())
        case = "gpus.NVIDIA H200.full-1.5B-mb4"

        def changed(**keys):
            return json.dumps({**good, "gpus": {"NVIDIA H200": {
                "full-1.5B-mb4": {**self.bar(), **keys}}}})

        for text, wanted in (
                ('{\n"gpus": }', ":2: no JSON: Expecting value"),
                ("[]", ": the file is not an object"),
                ('{"a": 1, "a": 2}', ": the key a is in it twice"),
                ("{}", ": the file has no tolerance_percent"),
                (json.dumps({**good, "tolerance_percent": "3"}),
                 ": tolerance_percent is not a number above 0"),
                (json.dumps({**good, "gpus": []}), ": gpus is not an object"),
                (json.dumps({**good, "gpus": {"X": []}}), ": gpus.X is not an object"),
                (json.dumps({**good, "gpus": {"X": {"full": {}}}}),
                 ": gpus.X has the unknown case full"),
                (changed(today=-1), f": {case}: today is not a number above 0"),
                (changed(goal=True), f": {case}: goal is not a number above 0"),
                (changed(commit=7), f": {case}: commit is not a text"),
                (changed(target=1), f": {case} has the unknown key target; known are today, goal,"),
                (json.dumps({**good, "gpus": {"X": {"decode-64": {"today": 1, "date": "d"}}}}),
                 ": gpus.X.decode-64 has no commit")):
            with self.subTest(text=text):
                self.bars_file.write_text(text)
                done = self.bench()
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertTrue(done.stderr.startswith(
                    f"trainer_bench: {self.bars_file}{wanted}"), done.stderr)
        self.bars_file.unlink()
        self.assertEqual(self.bench().stderr, f"trainer_bench: {self.bars_file}: cannot read it: "
                                              "No such file or directory\n")

    def test_the_bars_of_the_release_can_be_read(self):
        known = bars.read_bars(BENCH / "trainer_bars.json", BY_NAME)
        without = {case.name for case in CASES} - set(known["NVIDIA H200"])
        self.assertEqual(without, {"equal-2k-1.5B", "equal-8k-1.5B", "equal-32k-1.5B",
                                   "start-7B-lora"})
        for name, bar in known["NVIDIA H200"].items():
            self.assertTrue(bar.beside_goal is None or BY_NAME[name].beside in BY_NAME, name)


class Checks(unittest.TestCase):
    """Of figures in seconds, and of cases beside others."""

    def result(self, name, value, **peer_values):
        return results.CaseResult(
            BY_NAME[name], results.Runs(measurements=[Measurement(value)]),
            {peer: results.Runs(measurements=[Measurement(one)])
             for peer, one in peer_values.items()})

    def bar(self, **keys):
        return bars.Bar(**{"tolerance_percent": 10, "times_best_peer": 1.15,
                           "plan_within_percent": 3, "today": 2.0, **keys})

    def test_of_seconds_less_is_better(self):
        for seconds, met in ((2.19, True), (2.21, False)):
            check, = results.checks(self.result("grpo-2gpu", seconds), self.bar())
            self.assertEqual((check.limit, check.at_least, check.met), (2.2, False, met))
        result = self.result("grpo-2gpu", 2.0, slow=20.0, fast=3.0)
        self.assertEqual((result.best_peer(), result.times("fast")), ("fast", 1.5))

    def test_a_case_is_compared_with_the_one_beside_it(self):
        pair = self.result("lora-7B-mb4-dropout", 17.0), self.result("lora-7B-mb4", 20.0)
        _, check = results.checks(pair[0], self.bar(today=10.0, beside_goal=0.95), pair[1])
        self.assertEqual((check.what, check.measured, check.met),
                         ("beside lora-7B-mb4", 0.85, False))

    def test_a_case_that_was_never_measured_has_goals_only(self):
        check, = results.checks(self.result("grpo-2gpu", 2.0), self.bar(today=None, goal=1.5))
        self.assertEqual((check.what, check.is_bar, check.met), ("goal", False, False))


class Jobs(unittest.TestCase):
    """What is computed from the metrics of a job."""

    def train_records(self, seconds):
        return [{"event": "train", "step": step, "seconds": one, "tokens": 100, "time": 50.0 + step}
                for step, one in enumerate(seconds, 1)]

    def measure(self, job, seconds, results_of_job=None):
        settings = Settings(pathlib.Path("/none"), pathlib.Path("/none"), None, "tiny")
        with mock.patch.object(jobs, "train_job", return_value=(
                self.train_records(seconds), results_of_job or {})), \
                mock.patch.object(type(job), "recipe", return_value={}):
            return job.measure(settings)

    def test_the_rate_counts_slow_steps_but_not_the_first_ones(self):
        found = self.measure(jobs.Throughput("1.5B", gpus=2), [9, 1, 1, 3],
                             {"peak_memory_bytes/0": 2**30, "peak_memory_bytes/1": 3 * 2**30,
                              "planned_memory_bytes": 4 * 2**30})
        self.assertEqual((found.value, found.peak_gib, found.plan_gib), (30.0, 3.0, 4.0))

    def test_a_checkpoint_stalls_the_steps_after_it_and_the_first_one_is_left_out(self):
        seconds = [1.0] * 18
        seconds[4] = 90  # after the first checkpoint, at step 4
        for step, stall in ((8, 3.0), (12, 4.0), (16, 5.0)):
            seconds[step] += stall - 1  # a part in each of the two steps after it
            seconds[step + 1] += 1
        self.assertEqual(self.measure(jobs.CheckpointStall("1.5B"), seconds).value, 4.0)

    def test_a_job_without_enough_steps_is_a_failure(self):
        with self.assertRaisesRegex(Failed, "wrote metrics of 1 steps; more than 1 are needed"):
            self.measure(jobs.Throughput("1.5B"), [1])

    def test_a_grpo_step_without_advantages_is_a_failure(self):
        job = jobs.GrpoStep("1.5B")
        records = [{"event": "train", "step_time": time, "reward_std": std}
                   for time, std in ((9, 0), (2, 0.5), (4, 0.5))]
        settings = Settings(None, None, None, "tiny")
        with mock.patch.object(jobs, "train_job", return_value=(records, {})), \
                mock.patch.object(jobs.GrpoStep, "recipe", return_value={}):
            self.assertEqual(job.measure(settings).value, 3)
            records[1]["reward_std"] = 0
            with self.assertRaisesRegex(Failed, "learned nothing"):
                job.measure(settings)

    def test_new_lengths_are_all_different_and_unequal_ones_fill_bins(self):
        new = jobs.lengths_of("new", 2048, 600)
        self.assertEqual((len(set(new)), min(new), max(new)), (600, 1449, 2048))
        unequal = jobs.lengths_of("unequal", 2048, 1000)
        self.assertTrue(256 <= min(unequal) < 512 and 1536 < max(unequal) <= 2048)
        self.assertEqual(jobs.lengths_of("equal", 7, 2), [7, 7])


class Processes(unittest.TestCase):
    def test_a_program_that_takes_too_long_is_ended_with_its_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            pid_file = pathlib.Path(folder, "pid")
            settings = Settings(None, None, None, limit=2)
            with self.assertRaisesRegex(Failed, "^sh did not end within 2 s$"):
                # The worker is out of the group of its launcher, which ends it when asked to.
                run(settings, ["sh", "-c", 'setsid sleep 1000 & echo $! >"$0"; '
                                           'trap "kill $!; wait; exit" TERM; wait', pid_file])
            self.assertFalse(pathlib.Path("/proc", pid_file.read_text().strip()).exists())


class Machine(unittest.TestCase):
    def test_visible_devices_choose_the_gpus(self):
        rows = [{"index": 0}, {"index": 1}, {"index": 2}]
        for value, wanted in (("2,0", [2, 0]), ("", []), ("GPU-8f,", [0, 1, 2]), ("7", [])):
            with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": value}):
                self.assertEqual([row["index"] for row in machine.visible(rows)], wanted, value)


if __name__ == "__main__":
    unittest.main()
