"""The GRPO example in the size of its source: Qwen2.5-3B in 4 bits with an adapter, completions
generated in the process. The weights are random. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B -m unittest -v test_source_sizes

The variables are those of test_determinism.py; two ranks share a single GPU.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from random_model import write_model
from test_determinism import BIN, GPUS, ROOT

RECIPE = ROOT / "tests" / "runtime" / "config" / "recipes" / "unsloth_grpo.yaml"
SHAPE = {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008,
         "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
         "tie_word_embeddings": True}


@unittest.skipIf(GPUS == 0, "needs a GPU")
class SourceSizes(unittest.TestCase):
    def test_the_example_in_four_bits_trains_a_3b_model_on_two_ranks(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        write_model(folder / "model", SHAPE)
        rows = [{"prompt": f"What is {n} + {3 * n}?", "solution": str(4 * n)} for n in range(64)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = {"model_name_or_path": str(folder / "model"), "max_steps": 3,
                    "dataset_name": str(folder / "rows.jsonl"), "output_dir": str(folder / "out"),
                    "vllm_mode": "colocate", "max_completion_length": 128, "logging_steps": 1}
        shared = ["--oversubscribe"] * (GPUS < 2)
        job = subprocess.run(
            [BIN / "mgpu-run", "--nproc", "2", *shared, RECIPE,
             *(f"--set={key}={json.dumps(value)}" for key, value in settings.items())],
            capture_output=True, text=True, timeout=400,
            env={**os.environ, **({"NCCL_SOCKET_IFNAME": "lo"} if shared else {})})
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        records = [json.loads(line)
                   for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
        steps = [record for record in records if record["event"] == "train"]
        self.assertEqual([record["step"] for record in steps], [1, 2, 3])
        self.assertTrue((folder / "out" / "adapter_model.safetensors").exists())
        print([round(record["completions/mean_length"], 1) for record in steps],
              [round(record["step_time"], 2) for record in steps if "step_time" in record],
              end=" ", flush=True)


if __name__ == "__main__":
    unittest.main()
