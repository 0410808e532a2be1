"""Other features of PyTorch programs: @record, DataLoader, checkpoints, old launchers."""

import pathlib
import signal
import unittest

from torch_job import LIMIT, MGPU_RUN, PROGRAMS, ROOT, TorchJobTest


class Record(TorchJobTest):
    MESSAGE = "ValueError: the third layer is upside down"

    def check(self, *args):
        job = self.program(2, "recorded.py", *args)
        self.assertEqual(job.returncode, 1)
        attempt = job.report["attempts"][0]
        self.assertEqual(attempt["first_failure"]["rank"], 1)
        self.assertEqual(attempt["cause"]["kind"], "python_exception")
        self.assertEqual(attempt["cause"]["text"], self.MESSAGE)
        error = attempt["error_file"]["message"]
        self.assertEqual(error["message"], self.MESSAGE)
        self.assertIn("in main", error["extraInfo"]["py_callstack"])
        words = job.err[job.err.index("mgpu-run: "):]
        for expected in ("first failure: rank 1", f"cause   {self.MESSAGE}", "in main"):
            self.assertIn(expected, words)

    def test_the_exception_is_in_the_failure_report_and_in_the_json_report(self):
        self.check()

    def test_the_error_file_alone_is_enough(self):
        self.check("quiet")


class Loader(TorchJobTest):
    SUM = sum(range(64))

    def check_sums(self, results):
        self.assertEqual(sum(line["sum"] for line in results), self.SUM)
        for line in results:
            self.assertEqual((line["readers"], line["self"]), (2, False))

    def readers(self):
        return self.pids_of(self.wait_for_files("readers.[01]", 2, LIMIT))

    @staticmethod
    def pids_of(paths):
        return [int(word) for path in paths for word in path.read_text().split()]

    def start_loader(self, mode):
        return self.start("-n", 2, PROGRAMS / "loader.py", mode, env=self.torch_env)

    def test_worker_processes_read_everything_once(self):
        job = self.program(2, "loader.py", "all")
        self.assert_ended_well(job)
        self.check_sums(self.results(job))

    def test_a_rank_that_receives_sigterm_can_still_read_and_save(self):
        job = self.start_loader("stopped")
        readers = self.readers()
        job.send_signal(signal.SIGTERM)
        job.out, job.err = (text.decode() for text in job.communicate(timeout=LIMIT))
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, job.err)
        self.check_sums(self.results(job))
        self.assert_all_gone(readers)

    def test_a_killed_launcher_leaves_no_data_loader_process(self):
        job = self.start_loader("crash")
        readers = self.readers()
        job.kill()
        job.wait()
        self.assert_all_gone(readers, 1.0)

    def test_a_crashed_rank_leaves_no_data_loader_process(self):
        job = self.start_loader("crash")
        readers = self.readers()
        self.assertEqual(len(readers), 4)
        (self.dir / "go").write_text("")
        job.communicate(timeout=LIMIT)
        self.assertEqual(job.returncode, 3)
        self.assert_all_gone(readers)


class Training(TorchJobTest):
    def train(self, name, *doomed, options=()):
        folder = self.dir / name
        folder.mkdir()
        job = self.program(2, "resuming.py", folder, *doomed, options=options)
        self.assert_ended_well(job)
        results = self.results(job)
        self.assertEqual(results[0]["parameters"], results[1]["parameters"])
        return job, results[0]

    def test_a_run_that_was_killed_and_resumed_reaches_the_same_parameters(self):
        _, undisturbed = self.train("undisturbed")
        job, resumed = self.train("killed", 1, 7, options=["--max-restarts", 2])
        self.assertEqual((undisturbed["first_step"], resumed["first_step"]), (0, 7))
        self.assertEqual(resumed["parameters"], undisturbed["parameters"])
        self.assertEqual(len(job.report["attempts"]), 2)
        first = job.report["attempts"][0]["first_failure"]
        self.assertEqual((first["rank"], first["signal"]), (1, "SIGKILL"))

    def test_the_example_in_the_docs_learns(self):
        job = self.torch("-n", 2, ROOT / "docs/examples/hello_ddp.py")
        self.assert_ended_well(job)
        last = job.out.splitlines()[-1]
        self.assertTrue(last.startswith("2 workers on cpu: largest error of a weight "), job.out)
        self.assertLess(float(last.split()[-1]), 0.01)


class Module(TorchJobTest):
    def test_a_module_of_a_package_can_be_the_target(self):
        package = self.dir / "trainer"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "sums.py").write_text("import torch.distributed as dist\n"
                                         "def total(tensor):\n"
                                         "    dist.all_reduce(tensor)\n"
                                         "    return int(tensor)\n")
        (package / "main.py").write_text(
            "import json, sys\nimport torch, torch.distributed as dist\nfrom .sums import total\n"
            'dist.init_process_group("gloo")\n'
            'print(json.dumps({"rank": dist.get_rank(), "sum": total(torch.ones(1)),\n'
            '                  "args": sys.argv[1:]}), flush=True)\n'
            "dist.destroy_process_group()\n")
        job = self.torch("-n", 2, "-m", "trainer.main", "--lr", "1e-4")
        self.assert_ended_well(job)
        self.assertEqual(self.results(job), [{"rank": rank, "sum": 2, "args": ["--lr", "1e-4"]}
                                          for rank in range(2)])


class Links(TorchJobTest):
    def link(self, name):
        path = self.dir / name
        path.symlink_to(pathlib.Path(MGPU_RUN).resolve())
        return path


class Torchrun(Links):
    def test_a_command_line_of_torchrun_works_unchanged(self):
        job = self.torch("--standalone", "--nproc_per_node=2", "--rdzv_backend=c10d",
                         "--rdzv_endpoint=localhost:0", "--rdzv_id=j1", "--max_restarts=0",
                         PROGRAMS / "old_style.py", "--read-env", program=self.link("torchrun"))
        self.assert_ended_well(job)
        self.assertEqual(self.results(job), OldLauncher.TOGETHER)

    def test_one_rank_is_the_default_under_the_name_torchrun(self):
        job = self.torch("--no-python", "/bin/sh", "-c", 'echo "$WORLD_SIZE"',
                         program=self.link("torchrun"))
        self.assertEqual(job.out, "1\n")


class OldLauncher(Links):
    """torch.distributed.launch, whose scripts require --local-rank."""

    TOGETHER = [{"rank": rank, "world": 2, "sum": 2} for rank in range(2)]
    ALONE = [{"rank": 0, "world": 1, "sum": 1}] * 2

    def launch(self, *options, args=()):
        job = self.torch("-n", 2, *options, PROGRAMS / "old_style.py", *args)
        self.assert_ended_well(job)
        return self.results(job)

    def through_a_link(self, *options, args=()):
        job = self.torch("--nproc_per_node=2", *options, PROGRAMS / "old_style.py", *args,
                         program=self.link("torch-distributed-launch"))
        self.assert_ended_well(job)
        return self.results(job)

    def test_an_old_style_script_without_local_rank_runs_alone(self):
        self.assertEqual(self.launch(), self.ALONE)

    def test_no_use_env_passes_local_rank(self):
        self.assertEqual(self.launch("--no-use-env"), self.TOGETHER)

    def test_the_name_torch_distributed_launch_passes_local_rank(self):
        self.assertEqual(self.through_a_link(), self.TOGETHER)

    def test_use_env_under_the_name_torch_distributed_launch_passes_no_local_rank(self):
        self.assertEqual(self.through_a_link("--use-env"), self.ALONE)

    def test_use_env_works_for_scripts_that_read_the_environment(self):
        self.assertEqual(self.launch("--use-env", args=["--read-env"]), self.TOGETHER)


if __name__ == "__main__":
    unittest.main()
