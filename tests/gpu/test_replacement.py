"""Kills a rank of a job on GPUs with --replace-ranks, prints how long it takes until the next step, and
compares losses and weights with those of an undisturbed run. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_replacement

MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin]; MGPU_RUN and MGPU_TRAIN name other
programs. MGPU_MODEL is the model that the timed case trains with LoRA [a small random one]. Where
there are too few GPUs the ranks share one (--oversubscribe).
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from test_determinism import BIN, GPUS, Training

LIMIT = 300
MGPU_RUN = os.environ.get("MGPU_RUN") or BIN / "mgpu-run"  # it finds MGPU_TRAIN itself


def pid_of_rank(launcher, rank):
    for pid in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            process = pathlib.Path("/proc", pid)
            if (process / "comm").read_text() == "mgpu-train\n" and \
                    b"RANK=%d" % rank in (process / "environ").read_bytes().split(b"\0"):
                return int(pid)
        except OSError:
            continue
    return None


class Replacement(Training):
    LONG = {"max_steps": 60, "zero_stage": 0, "gradient_accumulation_steps": 1}

    def start(self, name, ranks, options=(), **keys):
        output = self.dir / name
        shutil.rmtree(output, ignore_errors=True)
        dataset = self.dir / "rows.jsonl"
        dataset.write_text("".join(json.dumps(row) + "\n" for row in self.token_rows(self.UNEQUAL)))
        keys = {"model_name_or_path": str(self.dir / "tied"), "dataset_name": str(dataset),
                "dataset_prepared_path": str(self.dir / "tokens"), "output_dir": str(output),
                **self.KEYS, **self.LONG, **keys}
        recipe = self.dir / f"{name}.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        shared = ranks > GPUS
        log = open(self.dir / f"{name}.log", "w")
        self.addCleanup(log.close)
        job = subprocess.Popen(
            [MGPU_RUN, "--nproc", str(ranks), *["--oversubscribe"] * shared, *options,
             recipe], stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, **({"NCCL_SOCKET_IFNAME": "lo"} if shared else {})})
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        job.output, job.log = output, self.dir / f"{name}.log"
        return job

    def steps(self, job):
        path = job.output / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return {record["step"]: record for record in records if record["event"] == "train"}

    def wait_for_step(self, job, step):
        end = time.monotonic() + LIMIT
        while step not in self.steps(job):
            self.assertIsNone(job.poll(), job.log.read_text())
            self.assertLess(time.monotonic(), end, job.log.read_text())
            time.sleep(0.01)

    def end(self, job):
        self.assertEqual(job.wait(LIMIT), 0, job.log.read_text())
        weights = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                   for path in job.output.glob("*.safetensors")}
        return [record["loss"] for _, record in sorted(self.steps(job).items())], weights

    def assert_replaced(self, ranks, lost, **keys):
        whole = self.end(self.start("whole", ranks, **keys))
        job = self.start("disturbed", ranks, ("--replace-ranks", "--max-restarts", "2"), **keys)
        self.wait_for_step(job, 15)
        before = [pid_of_rank(job.pid, rank) for rank in range(ranks)]
        killed = time.time()
        os.kill(before[lost], signal.SIGKILL)
        last = max(self.steps(job))
        self.wait_for_step(job, last + 3)
        after = [pid_of_rank(job.pid, rank) for rank in range(ranks)]
        next_steps = [r["time"] for step, r in self.steps(job).items() if step > last + 1]
        print(f"rank {lost} of {ranks} on {GPUS} GPU: kill to a step after it "
              f"{min(next_steps) - killed:.2f} s", end=" ", flush=True)
        disturbed = self.end(job)
        self.assertNotIn("restarting all ranks", job.log.read_text())
        self.assertEqual([rank for rank in range(ranks) if before[rank] != after[rank]], [lost])
        self.assertEqual(disturbed, whole)

    def test_the_last_of_two_ranks_is_replaced(self):
        self.assert_replaced(2, 1)

    def test_the_first_of_two_ranks_is_replaced(self):
        self.assert_replaced(2, 0)

    def test_a_rank_that_trains_adapters_is_replaced(self):
        keys = {"model_name_or_path": os.environ["MGPU_MODEL"]} if "MGPU_MODEL" in os.environ else {}
        self.assert_replaced(2, 1, **self.LORA, **keys)

    def test_one_of_three_ranks_is_replaced(self):
        self.assert_replaced(3, 1)


if __name__ == "__main__":
    unittest.main()
