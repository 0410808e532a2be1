"""mgpu-train itself, which links no LibTorch and executes the worker for what computes."""

import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_binary  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")).resolve()
PROGRAM = BUILD / "bin" / "mgpu-train"
LIMIT = 60
MOST_CPU_SECONDS = 0.05
BUILT_FOR = '{"torch": "2.11.0", "cuda": "13.0"}'
MAY_MOUNT = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev"],
                           stderr=subprocess.DEVNULL, check=False).returncode == 0
WORKER = '#!/bin/sh\necho "worker: $*"\necho "libraries: $LD_LIBRARY_PATH"\n'


@unittest.skipUnless(PROGRAM.exists(), "mgpu-train is not built")
class FrontEnd(unittest.TestCase):
    def test_it_is_one_file_for_glibc_2_34(self):
        found = [*check_binary.dynamic_findings(PROGRAM),
                 *check_binary.version_findings(PROGRAM, check_binary.NEWEST_GLIBC)]
        self.assertEqual(found, [])

    def test_help_check_and_plan_load_no_other_library_and_take_milliseconds(self):
        recipe = "docs/examples/quickstart.yaml"
        for words in (["--help"], ["version"], ["keys"], ["init", "lora"], ["check", recipe],
                      ["plan", recipe, "--gpu-memory", "8GB", "--gpus", "2"],
                      ["plan", "--model-size", "7B", "--gpu-memory", "32GB", "--gpus", "1"]):
            with self.subTest(words=words):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                done = subprocess.run([PROGRAM, *words], cwd=ROOT, env=environment(LD_DEBUG="files"),
                                      capture_output=True, text=True, timeout=LIMIT)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                self.assertEqual(done.returncode, 0, done.stderr[-400:])
                loaded = {line.split("file=")[1].split(" ")[0] for line in done.stderr.splitlines()
                          if "needed by" in line or "dynamically loaded" in line}
                self.assertLessEqual(loaded, check_binary.LIBRARIES)
                used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
                self.assertLess(used, MOST_CPU_SECONDS)

    def test_the_quickstart_is_that_of_the_source_tree_without_its_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            def quickstart(*words):
                return subprocess.run([PROGRAM, "quickstart", *words], cwd=folder, env=environment(),
                                      capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(quickstart().returncode, 0)
            written = [path for path in pathlib.Path(folder, "quickstart").rglob("*") if path.is_file()]
            self.assertEqual(len(written), 8)
            for path in written:
                source = ROOT / "docs/examples" / path.relative_to(pathlib.Path(folder, "quickstart"))
                self.assertEqual(path.read_text(), source.read_text().replace("docs/examples/", ""))
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["quickstart"])
            again = quickstart()
            self.assertEqual((again.returncode, again.stderr),
                             (2, "mgpu-train: quickstart already exists; use it, or give another name, such "
                              "as mgpu-train quickstart quickstart-2\n"))
            self.assertIn("such as mgpu-train quickstart quickstart\n", quickstart(".").stderr)

    def test_check_reports_folders_that_are_missing_and_what_a_folder_lacks(self):
        """It passed without a word about a mistyped path."""
        def check(model, *words):
            return subprocess.run([PROGRAM, "check", f"--set=model_name_or_path={model}",
                                   "--set=dataset_name=docs/examples/addition.jsonl", *words],
                                  cwd=ROOT, env=environment(), capture_output=True, text=True,
                                  timeout=LIMIT)
        done = check("./gone", "--set=tokenizer_path=./lost")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("not checked: model_name_or_path: ./gone is neither a folder nor a Hub id",
                      done.stdout)
        self.assertIn("not checked: tokenizer_path: there is no folder ./lost with a tokenizer",
                      done.stdout)
        with tempfile.TemporaryDirectory(prefix="mgpu-front-end-") as folder:
            done = check(folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"{folder}/config.json: No such file", done.stderr)
            self.assertNotIn("not checked", check(folder).stdout)

    def test_check_mentions_options_of_the_launcher_that_it_does_not_check(self):
        with tempfile.TemporaryDirectory(prefix="mgpu-front-end-") as folder:
            recipe = pathlib.Path(folder, "r.yaml")
            recipe.write_text("model_size: tiny\ndataset_name: docs/examples/addition.jsonl\n"
                              "launch: {nprocs: 2}\n")
            done = subprocess.run([PROGRAM, "check", recipe], cwd=ROOT, env=environment(),
                                  capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"not checked: launch:, the options of mgpu-run; mgpu-run {recipe} --check",
                          done.stdout)

    def test_a_recipe_in_a_missing_folder_was_refused_with_advice_about_output_dir(self):
        for words in (["init", "sft", "-o", "/nowhere/t.yaml"],
                      ["plan", "--model-size", "7B", "--gpu-memory", "24GB", "--gpus", "1",
                       "--write", "/nowhere/t.yaml"]):
            done = subprocess.run([PROGRAM, *words], env=environment(), capture_output=True,
                                  text=True, timeout=LIMIT)
            self.assertEqual((done.returncode, done.stderr),
                             (2, "mgpu-train: cannot write /nowhere/t.yaml: there is no folder "
                                 "/nowhere\n"))

    def test_output_that_cannot_be_written_was_lost_with_status_0(self):
        for words in (["--help"], ["version"], ["keys"], ["init", "lora"],
                      ["check", "docs/examples/quickstart.yaml"],
                      ["plan", "--model-size", "7B", "--gpu-memory", "32GB", "--gpus", "1"],
                      ["data", "docs/examples/quickstart.yaml"]):
            with self.subTest(words=words), open("/dev/full", "wb") as full, \
                    tempfile.TemporaryDirectory() as cache:
                done = subprocess.run([PROGRAM, *words], cwd=ROOT, env=environment(XDG_CACHE_HOME=cache),
                                      stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"^mgpu-train: cannot write to .*: No space left on device\n$")

    def test_control_characters_of_a_recipe_reached_the_terminal(self):
        for settings in ([r'dataset_name="\u0007\u001b[31mx"'],
                         [r'adapter_path="./\u0007\u001b[31mx"', "dataset_name=docs/examples/addition.jsonl"]):
            done = subprocess.run([PROGRAM, "check", "--set=model_size=tiny",
                                   *(f"--set={each}" for each in settings)],
                                  cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT)
            self.assertIn("x", done.stdout + done.stderr)
            self.assertNotRegex(done.stdout + done.stderr, "[\a\x1b]")

    def test_mistakes_in_arguments_have_status_2(self):
        with tempfile.TemporaryDirectory(prefix="mgpu-front-end-") as folder:
            pathlib.Path(folder, "there").write_text("{}\n")
            for words, line in ((["quickstart", ""], "give the folder a name"),
                                (["init", "sft", "-o", "there"], "there already exists"),
                                (["score", "--rewards", "nope", "there"], "unknown reward nope"),
                                (["score", "--rewards", "format", "gone"], "gone: No such file"),
                                (["score", "--rewards", "format", "."], r"\. is a folder"),
                                (["score", "--rewards", "format", "there"],
                                 "there:1: the row has no column completion"),
                                (["train-tokenizer", "gone.txt", "-o", "out"],
                                 "cannot read gone.txt: No such file")):
                with self.subTest(words=words):
                    done = subprocess.run([PROGRAM, *words], cwd=folder, env=environment(),
                                          capture_output=True, text=True, timeout=LIMIT)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertRegex(done.stderr, f"^mgpu-train: .*{line}.*\n$")
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["there"])

    def test_a_folder_that_cannot_be_created_was_reported_in_the_words_of_the_c_library(self):
        done = subprocess.run([PROGRAM, "quickstart", "/proc/quickstart"], env=environment(),
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "mgpu-train: cannot create the folder /proc/quickstart: No such file or "
                             "directory; give another one\n"))

    def test_a_folder_that_cannot_be_written_is_not_left_half_written(self):
        with tempfile.TemporaryDirectory(prefix="mgpu-front-end-") as folder:
            done = subprocess.run([PROGRAM, "quickstart"], cwd=folder, env=environment(),
                                  capture_output=True, text=True, timeout=LIMIT,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
            self.assertEqual((done.returncode, done.stderr),
                             (1, "mgpu-train: cannot create the folder quickstart: File too large; "
                                 "give another one\n"))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_a_reader_that_left_is_no_error(self):
        for end in ("pipe", "socket"):
            with self.subTest(end):
                if end == "pipe":
                    theirs, ours = os.pipe()
                    os.close(theirs)
                else:
                    left, right = socket.socketpair()
                    right.send(b"unread")
                    right.close()
                    ours = left.detach()
                try:
                    done = subprocess.run([PROGRAM, "check", "docs/examples/quickstart.yaml"], cwd=ROOT,
                                          env=environment(), stdout=ours, stderr=subprocess.PIPE,
                                          timeout=LIMIT, restore_signals=False)  # SIGPIPE is ignored
                finally:
                    os.close(ours)
                self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_file_that_cannot_be_read_for_now_is_not_a_mistake(self):
        """Reading this file ends with EIO, as that of a failing disk does."""
        for words in (["check", "/proc/self/mem"],
                      ["score", "--rewards", "format", "/proc/self/mem"]):
            with self.subTest(words=words):
                done = subprocess.run([PROGRAM, *words], env=environment(), capture_output=True,
                                      text=True, timeout=LIMIT)
                self.assertEqual((done.returncode, done.stderr),
                                 (1, "mgpu-train: cannot read /proc/self/mem: Input/output error\n"))

    def test_score_did_not_report_why_it_cannot_open_a_file_and_scored_rows_for_nothing(self):
        with tempfile.TemporaryDirectory(prefix="mgpu-front-end-") as folder:
            rows = pathlib.Path(folder, "rows.jsonl")
            rows.write_text('{"prompt": "1+1=", "completion": "2"}\n')
            pathlib.Path(folder, "slow.py").write_text(
                "def slow(completions, **_):\n    open('called', 'w').close()\n    return [0.0]\n")

            def score(*words):
                done = subprocess.run([PROGRAM, "score", "--rewards", "./slow.py:slow", *words],
                                      cwd=folder, env=environment(), capture_output=True, text=True,
                                      timeout=LIMIT)
                return done.returncode, done.stderr
            self.assertEqual(score("gone.jsonl"),
                             (2, "mgpu-train: cannot read gone.jsonl: No such file or directory\n"))
            self.assertEqual(score("rows.jsonl", "--output", "gone/scores"),
                             (1, "mgpu-train: cannot write gone/scores: No such file or directory\n"))
            self.assertFalse(pathlib.Path(folder, "called").exists())

    def test_a_folder_with_a_slash_at_its_end_was_left_half_written(self):
        with tempfile.TemporaryDirectory(prefix="mgpu-front-end-") as folder:
            done = subprocess.run([PROGRAM, "quickstart", "new/"], cwd=folder, env=environment(),
                                  capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(pathlib.Path(folder, "new/quickstart.yaml").exists())


@unittest.skipUnless(PROGRAM.exists(), "mgpu-train is not built")
class InstalledFrontEnd(unittest.TestCase):
    """An environment as pip makes it, with a script as the worker."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-installed-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "bin").mkdir()
        shutil.copy(PROGRAM, self.dir / "bin")
        self.site = self.dir / "lib" / "python3.12" / "site-packages"

    def add_worker(self):
        folder = self.site / "mgpu_train"
        folder.mkdir(parents=True)
        (folder / "mgpu-train").write_text(WORKER)
        (folder / "mgpu-train").chmod(0o755)
        (folder / "build.json").write_text(BUILT_FOR)

    def add_torch(self, site, version="2.11.0+cu130", cuda="'13.0'"):
        folder = site / "torch"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("")
        (folder / "version.py").write_text(f"__version__ = '{version}'\ncuda = {cuda}\n")
        for library in ("cu13/lib/libcudart.so.13", "nccl/lib/libnccl.so.2"):
            path = site / "nvidia" / library
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def run_train(self, *words, within=(), **variables):
        """`within` is a command that gets this one as its last arguments."""
        return subprocess.run([*within, self.dir / "bin" / "mgpu-train", *words], capture_output=True,
                              text=True, timeout=LIMIT,
                              env=environment(LD_LIBRARY_PATH="", **variables))

    def refused(self, within=(), status=2, **variables):
        done = self.run_train("recipe.yaml", within=within, **variables)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_help_needs_no_worker(self):
        self.assertEqual(self.run_train("--help").returncode, 0)

    def test_a_missing_worker_is_named(self):
        self.assertIn(f"mgpu-train: the worker of {self.dir}/bin/mgpu-train is missing", self.refused(status=1))

    def test_the_worker_gets_all_arguments(self):
        self.add_worker()
        self.add_torch(self.site)
        done = self.run_train("recipe.yaml", "--set", "a=b c")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "worker: recipe.yaml --set a=b c\nlibraries: \n")

    def test_a_mistake_on_the_command_line_is_reported_without_the_worker(self):
        done = self.run_train("recipe.yaml", "--sett", "a=b")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown option --sett; did you mean --set?", done.stderr)

    def test_a_missing_torch_is_named_with_the_command_that_installs_it(self):
        self.add_worker()
        for variables in (dict(PATH="/nope"), dict(LIBTORCH_ROOT=""), dict(LIBTORCH_ROOT="/nope")):
            self.assertEqual(self.refused(**variables), "mgpu-train: torch 2.11 is missing; run python3 "
                             "-m pip install 'torch==2.11.*'\n")

    def test_another_version_of_torch_is_refused_and_the_source_build_named(self):
        self.add_worker()
        self.add_torch(self.site, "2.10.0+cu128", "'12.8'")
        message = self.refused()
        self.assertIn("this mgpu-train needs torch 2.11, but ", message)
        self.assertIn("scripts/build.sh --torch=2.10.0", message)

    def test_a_torch_for_another_version_of_cuda_is_refused(self):
        self.add_worker()
        self.add_torch(self.site, "2.11.0+cu128", "'12.8'")
        self.assertRegex(self.refused(), "^mgpu-train: this mgpu-train needs torch for CUDA 13, but .* has "
                         "2.11.0.cu128 for CUDA 12.8; run .*-m pip install 'torch==2.11.*' ")

    @unittest.skipUnless(MAY_MOUNT, "needs permission to mount")
    def test_a_torch_without_cuda_is_refused_where_there_are_gpus_and_used_where_they_are_hidden(self):
        self.add_worker()
        self.add_torch(self.site, "2.11.0+cpu", None)
        # A /dev with the file that the driver of NVIDIA makes.
        with_gpus = ("unshare", "--mount", "sh", "-c",
                     'mount -t tmpfs tmpfs /dev && : >/dev/nvidiactl && exec "$@"', "sh")
        self.assertRegex(self.refused(within=with_gpus), "has torch 2.11.0.cpu, a build without CUDA, so "
                         "the GPUs of this machine would be idle; run .*, or set CUDA_VISIBLE_DEVICES= to "
                         "compute on CPUs")
        done = self.run_train("recipe.yaml", within=with_gpus, CUDA_VISIBLE_DEVICES="")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_torch_in_another_folder_of_packages_is_found_as_python_finds_it(self):
        self.add_worker()
        (self.dir / "bin" / "python3").symlink_to(sys.executable)
        elsewhere = self.dir / "elsewhere"
        self.add_torch(elsewhere)
        done = self.run_train("recipe.yaml", PYTHONPATH=str(elsewhere))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, libraries = done.stdout.splitlines()
        self.assertEqual(first, "worker: recipe.yaml")
        folders = libraries.removeprefix("libraries: ").split(":")
        self.assertEqual((folders[0], sorted(folders[1:])),
                         (f"{elsewhere}/torch/lib", [f"{elsewhere}/nvidia/cu13/lib",
                                                     f"{elsewhere}/nvidia/nccl/lib"]))

    def test_a_folder_named_torch_beside_the_recipe_is_not_taken(self):
        self.add_worker()
        (self.dir / "work").mkdir()
        self.add_torch(self.dir / "work")
        (self.dir / "bin" / "python3").symlink_to(sys.executable)
        done = subprocess.run([self.dir / "bin" / "mgpu-train", "recipe.yaml"], capture_output=True,
                              text=True, timeout=LIMIT, cwd=self.dir / "work",
                              env=environment(PYTHONNOUSERSITE="1"))
        self.assertNotIn(f"{self.dir}/work", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
