"""Rank 1 of a training job has memory on GPU 1 only. Run by hand on a machine with two GPUs that
nothing else uses:

    cd tests/gpu; python -B -m unittest -v test_one_gpu_per_rank

A context on a GPU takes some hundred MiB and makes the process appear in nvidia-smi's list for it.
Containers may hide that list; used memory is compared in any case.
"""

import collections
import json
import shutil
import subprocess
import time
import unittest

from test_determinism import BIN, GPUS, Training

CONTEXT_MIB = 200  # less than any context takes


def query(what, fields):
    lines = subprocess.run(["nvidia-smi", f"--query-{what}={fields}",
                            "--format=csv,noheader,nounits"], check=True, capture_output=True,
                           text=True, timeout=60).stdout.splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]


def used_mib():
    return {uuid: int(used) for uuid, used in query("gpu", "uuid,memory.used")}


def processes():
    return {(uuid, pid) for uuid, pid in query("compute-apps", "gpu_uuid,pid")}


@unittest.skipIf(GPUS < 2, "needs two GPUs")
class OneGpuPerRank(Training):
    def test_each_rank_has_memory_on_its_own_gpu_only(self):
        for stage in (0, 3):
            with self.subTest(stage=stage):
                self.assert_one_gpu_per_rank(zero_stage=stage)

    def assert_one_gpu_per_rank(self, **keys):
        recipe = self.recipe_of_a_long_run(**keys)
        before, others = used_mib(), processes()
        job = subprocess.Popen([BIN / "mgpu-run", "--nproc", "2", recipe],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            self.wait_for_steps(job, 5)
            gained = {uuid: used - before[uuid] for uuid, used in used_mib().items()}
            listed = processes() - others
        finally:
            job.terminate()
            job.communicate(timeout=120)
        busy = sorted(mib for mib in gained.values() if mib > CONTEXT_MIB)
        self.assertEqual(len(busy), 2, gained)
        # A second context on one of the two would make the difference.
        self.assertLess(busy[1] - busy[0], CONTEXT_MIB, gained)
        if listed:
            gpus_of = collections.defaultdict(set)
            for uuid, pid in listed:
                gpus_of[pid].add(uuid)
            self.assertEqual([len(gpus) for gpus in gpus_of.values()], [1, 1], listed)

    def recipe_of_a_long_run(self, **keys):
        # Rows of equal length, so that both ranks use about the same memory.
        dataset = self.dir / "data.jsonl"
        dataset.write_text("".join(json.dumps(row) + "\n" for row in self.token_rows(self.EQUAL)))
        keys = {"model_name_or_path": str(self.dir / "tied"), "dataset_name": str(dataset),
                "output_dir": str(self.dir / "long"), **self.KEYS, "max_steps": 1000000,
                "full_determinism": False, "resume_from_checkpoint": "no", **keys}
        shutil.rmtree(self.dir / "long", ignore_errors=True)
        recipe = self.dir / "long.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        return recipe

    def wait_for_steps(self, job, steps):
        deadline = time.monotonic() + 300
        metrics = self.dir / "long" / "metrics.jsonl"
        while not (metrics.exists() and f'"step":{steps},' in metrics.read_text()):
            self.assertIsNone(job.poll(), job.stderr.read() if job.poll() is not None else "")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
