"""Needs GPUs (skipped without): devices, rank counts, NCCL, running out of GPU memory."""

import glob
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import MGPU_RUN, JobTest, environment, until  # noqa: E402

GPUS = len(glob.glob("/dev/nvidia[0-9]*"))
PYTHON = os.environ.get("MGPU_TORCH_PYTHON") or sys.executable
HELLO = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples" / "hello_ddp.py"
SHOW = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE [$CUDA_VISIBLE_DEVICES]"'


@unittest.skipIf(GPUS == 0, "no GPU here")
class Gpu(JobTest):
    def python(self, *args, **kwargs):
        env = {"PYTHON_EXEC": PYTHON, "NCCL_NVLS_ENABLE": "0", **kwargs.pop("env", {})}
        return self.run_job(*args, limit=180, env=env, **kwargs)

    def test_devices_agree_with_torch(self):
        listed = subprocess.run([MGPU_RUN, "devices", "--json"], env=environment(), check=True,
                                capture_output=True, text=True)
        gpus = json.loads(listed.stdout)["gpus"]
        printed = subprocess.run([PYTHON, "-c", "import json, torch; print(json.dumps([[p.name, "
                               "p.major, p.minor, p.total_memory] for p in (torch.cuda."
                               "get_device_properties(i) for i in range(torch.cuda.device_count()"
                               "))]))"], env=environment(), check=True, capture_output=True, text=True)
        for gpu, (name, major, minor, memory) in zip(gpus, json.loads(printed.stdout), strict=True):
            self.assertEqual(gpu["name"], name)
            self.assertEqual(gpu["compute_capability"], f"{major}.{minor}")
            self.assertLess(abs(gpu["memory_total_bytes"] - memory) / memory, 0.05)

    def test_one_rank_per_visible_gpu_is_the_default(self):
        job = self.run_job("--no-python", "/bin/sh", "-c", SHOW)
        self.assertEqual(len(job.out.splitlines()), GPUS)
        job = self.run_job("--no-python", "/bin/sh", "-c", SHOW, env={"CUDA_VISIBLE_DEVICES": "0"})
        self.assertEqual(job.out, "0 0 1 [0]\n")

    def test_more_ranks_than_gpus_is_a_usage_error_with_advice(self):
        job = self.run_job("-n", GPUS + 1, "--no-python", "/bin/true")
        self.assertEqual(job.returncode, 2)
        self.assertIn(f"needs {GPUS + 1} GPUs, found {GPUS}; use --nproc {GPUS}", job.err)
        job = self.run_job("-n", GPUS + 1, "--oversubscribe", "--no-python", "/bin/true")
        self.assertEqual(job.returncode, 0, job.err)

    def test_virtual_local_rank_shows_each_rank_its_own_gpu(self):
        job = self.run_job("--virtual-local-rank", "--no-python", "/bin/sh", "-c", SHOW)
        self.assertEqual(sorted(job.out.splitlines()), [f"{i} 0 {GPUS} [{i}]" for i in range(GPUS)])

    def test_an_nccl_group_forms_and_trains(self):
        job = self.python(HELLO)
        self.assertEqual(job.returncode, 0, job.err)
        self.assertIn("workers on cuda", job.out)

    def test_a_gpu_oom_is_the_cause_and_the_restarted_ranks_get_the_oom_count(self):
        worker = self.script(
            'import os, torch\nrank = int(os.environ["LOCAL_RANK"])\n'
            'if os.environ["MGPU_OOM_COUNT"] == "1": raise SystemExit(0)\n'
            'held = [torch.empty(1 << 34, dtype=torch.uint8, device=rank) for _ in range(64)]\n')
        job = self.python("-n", 1, "--max-restarts", 1, worker)
        self.assertEqual(job.returncode, 0, job.err)
        cause = job.report["attempts"][0]["cause"]
        self.assertEqual(cause["kind"], "gpu_oom")
        self.assertIn("Tried to allocate 16.00 GiB", cause["text"])

    def test_sigkill_of_mgpu_run_frees_the_gpu_memory(self):
        worker = self.script(
            'import os, time, torch\nrank = int(os.environ["LOCAL_RANK"])\n'
            'held = torch.empty(1 << 33, dtype=torch.uint8, device=rank)\n'
            'open(f"up.{rank}", "w").write(str(os.getpid()))\ntime.sleep(300)\n')
        job = self.start(worker, env={"PYTHON_EXEC": PYTHON})
        pids = self.pids_from("up.*", GPUS, 120)
        job.kill()
        job.wait()
        self.assert_all_gone(pids, 10)

        def used():
            listed = subprocess.run([MGPU_RUN, "devices", "--json"], env=environment(),
                                    capture_output=True, text=True)
            return max(gpu["memory_used_bytes"] for gpu in json.loads(listed.stdout)["gpus"])
        until(lambda: used() < 1 << 33, 10, "the release of the GPU memory")


if __name__ == "__main__":
    unittest.main()
