"""Jobs of a real Slurm: srun and sbatch start mgpu-run without options on two nodes."""

import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
import netns  # noqa: E402
import slurm  # noqa: E402
from harness import MGPU_RUN, until  # noqa: E402

TORCH_PYTHON = os.environ.get("MGPU_TORCH_PYTHON", "")
SBATCH = HERE.parents[1] / "docs" / "examples" / "mgpu-run.sbatch"

# The trainer of these jobs: prints the place of every rank and a sum over all ranks.
TRAINER = f"""#!{TORCH_PYTHON}
import os, signal, socket, sys
from torch import distributed as d, ones
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
d.init_process_group("gloo")
x = ones(1) * (d.get_rank() + 1)
d.all_reduce(x)
e = os.environ
print("rank", e["RANK"], "of", e["WORLD_SIZE"], "on", socket.gethostname(), "at",
      e["MGPU_LEADER_ADDR"], "run", e["TORCHELASTIC_RUN_ID"], "sum", int(x),
      "args", *sys.argv[1:], flush=True)
if "WAIT" in e:
    while not got:
        signal.pause()
    print("rank", e["RANK"], "was signalled", flush=True)
d.destroy_process_group()  # its threads may otherwise abort an ending process
"""


@unittest.skipIf(netns.reason_to_skip() or slurm.reason_to_skip(),
                 netns.reason_to_skip() or slurm.reason_to_skip())
class OnSlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.net = netns.Net(3)
        cls.addClassCleanup(cls.net.close)
        cls.slurm = slurm.Slurm(cls.net)
        cls.addClassCleanup(cls.slurm.close)

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mgpu-slurm-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        (self.dir / "bin").mkdir()
        (self.dir / "bin" / "mgpu-run").symlink_to(MGPU_RUN)
        trainer = self.dir / "mgpu-train"
        trainer.write_text(TRAINER)
        trainer.chmod(0o755)
        (self.dir / "train.yaml").write_text("model: none\n")
        self.env = {"PATH": f"{self.dir}/bin:{os.environ['PATH']}", "MGPU_TRAIN": str(trainer),
                    "TMPDIR": str(self.dir), "CUDA_VISIBLE_DEVICES": ""}

    def srun(self, *argv, env=None, limit=60):
        return self.slurm.run("srun", *argv, limit=limit, folder=self.dir,
                              env={**self.env, **(env or {})})

    def test_each_node_finds_its_rank_under_srun(self):
        done = self.srun("-N2", "--ntasks-per-node=1", "--gpus-per-node=2", "--label",
                         "mgpu-run", "--dry-run", "/bin/true")
        for rank in range(2):
            found = dict(re.findall(rf"(?m)^{rank}:   (\S+(?: \S+)*?) {{2,}}(\S+) {{2,}}SLURM",
                                   done.stdout))
            self.assertEqual(found["node rank"], str(rank), done.stdout)
            self.assertEqual(found["nodes"], "2")
            self.assertEqual(found["first host"], "host0")
            self.assertEqual(found["GPUs per node"], "2")
            self.assertRegex(found["job"], r"^slurm-\d+\.0$")
            self.assertRegex(found["port"], r"^2\d{4}$")

    def test_several_tasks_on_a_node_end_with_a_message_that_names_the_option(self):
        done = self.srun("-N2", "-n4", "mgpu-run", "--dry-run", "/bin/true")
        self.assertIn("mgpu-run: srun started 4 tasks on 2 nodes, but mgpu-run needs one task per node and "
                      "starts the ranks itself: use srun --ntasks-per-node=1 mgpu-run",
                      done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def test_standalone_jobs_run_side_by_side_in_a_step(self):
        done = self.srun("-N2", "-n4", "mgpu-run", "--standalone", "-n", "1", "--no-python",
                         "sh", "-c", "echo $RANK of $WORLD_SIZE")
        self.assertEqual(done.stdout, "0 of 1\n" * 4, done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_a_batch_script_without_srun_runs_one_node_and_reports_it(self):
        script = self.dir / "job"
        script.write_text("#!/bin/sh\nmgpu-run --no-python sh -c "
                          "'echo $RANK of $WORLD_SIZE in $TORCHELASTIC_RUN_ID'\n")
        done = self.slurm.run("sbatch", "--wait", "-N2", "--gpus-per-node=2", "-o", "out", script,
                              folder=self.dir, env=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = (self.dir / "out").read_text()
        job = re.search(r"\d+", done.stdout)[0]
        self.assertIn(f"mgpu-run: Slurm job {job} has 2 nodes, but srun did not start mgpu-run", out)
        self.assertEqual(sorted(line for line in out.splitlines() if " of " in line
                                and "mgpu-run" not in line),
                         [f"{rank} of 2 in slurm-{job}" for rank in range(2)])

    def test_ranks_receive_the_signal_before_the_time_limit(self):
        with open(self.dir / "out", "wb") as out:
            job = self.slurm.controller.start(
                [slurm.program("srun"), "-N1", "-n1", "mgpu-run", "-n", "2", "--no-python", "sh",
                 "-c", "trap 'echo signalled $RANK; exit 0' USR1; echo up > up.$RANK; "
                 "while :; do sleep 0.1; done"],
                folder=self.dir, env=self.slurm.environment(**self.env), stdout=out, stderr=out)
        self.addCleanup(job.kill)
        until(lambda: len(list(self.dir.glob("up.*"))) == 2, 30, "two ranks")
        steps = self.slurm.run("squeue", "-h", "-s", "-o", "%i").stdout.split()
        step = next(step for step in steps if step.endswith(".0"))
        self.assertEqual(self.slurm.run("scancel", "--signal=USR1", step).returncode, 0)
        self.assertEqual(job.wait(30), 0)
        found = re.findall("signalled .", (self.dir / "out").read_text())
        self.assertEqual(sorted(found), ["signalled 0", "signalled 1"])

    def sbatch(self, *options, limit=120):
        """Runs the example unchanged; the command line overrides the resources that it requests."""
        done = self.slurm.run("sbatch", "--wait", "--gpus-per-node=2", "--cpus-per-task=2",
                              "--output=out", *options, SBATCH, limit=limit, folder=self.dir,
                              env=self.env)
        return done, re.search(r"\d+", done.stdout)[0], (self.dir / "out").read_text()

    @unittest.skipIf(not TORCH_PYTHON, "MGPU_TORCH_PYTHON names no python that has torch")
    def test_the_sbatch_file_of_the_documentation_runs(self):
        done, job, out = self.sbatch()
        self.assertEqual(done.returncode, 0, out)
        found = re.findall(r"rank (\d) of 4 on (host\d) at (\S+) run (\S+) sum 10 "
                           r"args train.yaml", out)
        self.assertEqual([(rank, host) for rank, host, *_ in sorted(found)],
                         [("0", "host0"), ("1", "host0"), ("2", "host1"), ("3", "host1")], out)
        self.assertEqual({run for *_, run in found}, {f"slurm-{job}.0"})
        self.assertEqual(len({address for _, _, address, _ in found}), 1)

    def test_a_failing_rank_fails_the_batch_job_with_its_status(self):
        (self.dir / "mgpu-train").write_text(
            "#!/bin/sh\ntest $RANK != 3 || exit 7\nexec sleep 100\n")
        done, _, out = self.sbatch("--export=ALL,MGPU_GRACE=1")
        self.assertEqual(done.returncode, 7, out)


if __name__ == "__main__":
    unittest.main()
