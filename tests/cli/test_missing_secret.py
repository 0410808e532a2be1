"""The command line of the guide to distributed training of Qwen3, for two machines, unchanged."""

import re
import subprocess
import unittest

from harness import MGPU_RUN, JobTest, environment

NAMES = ("torch-distributed-launch", "torchrun")  # links to mgpu-run, in place of python -m
OPTIONS = ("--nproc_per_node=4", "--nnodes=2", "--node_rank={}", "--master_addr=192.168.1.100",
           "--master_port=12355")
SCRIPT = "run_distributed_training.py"


class MissingSecret(JobTest):
    def setUp(self):
        super().setUp()
        (self.dir / SCRIPT).write_text("raise SystemExit('no rank may start')\n")
        for name in NAMES:
            (self.dir / name).symlink_to(MGPU_RUN)

    def launch(self, name, node, *more):
        options = [option.format(node) for option in OPTIONS]
        return subprocess.run([self.dir / name, *options, *more, SCRIPT], cwd=self.dir,
                              capture_output=True, text=True, env=environment(), timeout=60,
                              stdin=subprocess.DEVNULL)

    def test_one_line_on_each_machine_names_the_missing_secret_and_how_to_create_it(self):
        for name in NAMES:
            for node in range(2):
                with self.subTest(name=name, node=node):
                    job = self.launch(name, node)
                    self.assertEqual((job.returncode, job.stdout), (2, ""))
                    self.assertRegex(job.stderr, r"\Amgpu-run: --nnodes 2: no shared secret; "
                                     r"create one with `[^`]+`, copy it to all nodes[^\n]+\n\Z")
                    for way in ("--rdzv-token-file", "MGPU_RDZV_TOKEN", "--insecure"):
                        self.assertIn(way, job.stderr)

    def test_the_line_shows_a_command_whose_secret_is_accepted(self):
        command, option = re.search(r"with `([^`]+)`.* add (--rdzv-token-file \w+)",
                                    self.launch(NAMES[0], 0).stderr).groups()
        subprocess.run(["/bin/sh", "-c", command], cwd=self.dir, check=True)
        for node in range(2):
            job = self.launch(NAMES[0], node, *option.split(), "--dry-run")
            self.assertEqual((job.returncode, job.stderr), (0, ""))
            self.assertEqual(job.stdout.count(SCRIPT), 4)


if __name__ == "__main__":
    unittest.main()
