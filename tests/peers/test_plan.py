"""mgpu-train plan, as a user runs it on a machine without GPUs and without the model's weights."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import environment  # noqa: E402
from trainer import BIN, LIMIT, ROOT  # noqa: E402

CONFIG = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936,
          "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
          "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768,
          "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True,
          "hidden_act": "silu", "torch_dtype": "bfloat16"}


@unittest.skipUnless((BIN / "mgpu-train").exists(), "mgpu-train is not built")
class PlanTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-plan-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.model = self.dir / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))

    def recipe(self, *lines):
        path = self.dir / "recipe.yaml"
        path.write_text("\n".join((f"model_name_or_path: {self.model}", "dataset_name: d.jsonl",
                                   *lines)) + "\n")
        return str(path)

    def run_train(self, *args):
        return subprocess.run([BIN / "mgpu-train", *args], capture_output=True, text=True,
                              timeout=LIMIT, env=environment(CUDA_VISIBLE_DEVICES=""))

    def plan(self, *args):
        done = self.run_train("plan", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_config_json_is_enough(self):
        text = self.plan(self.recipe(), "--gpu-memory", "80GB", "--gpus", "2")
        self.assertIn("494032768 parameters", text)
        self.assertIn("it fits", text)

    def test_a_size_replaces_the_model_of_the_recipe(self):
        text = self.plan(self.recipe(), "--model-size", "7B", "--gpu-memory", "80GB", "--gpus", "8")
        self.assertIn("7615616512 parameters", text)

    def test_the_example_for_the_smallest_gpus_fits_into_half_of_8_gb(self):
        recipe = str(ROOT / "docs/examples/qlora_8gb.yaml")
        text = self.plan(recipe, "--model-size", "3B", "--gpu-memory", "8GB", "--gpus", "1")
        self.assertIn("A GPU has 8.0 GiB: it fits", text)
        total, = re.findall(r"^  total +([0-9.]+) GiB$", text, re.M)
        self.assertLess(float(total), 4)

    def test_a_size_is_answered_with_a_recipe_that_can_be_written(self):
        args = ("--model-size", "7B", "--gpu-memory", "32GB", "--gpus", "2")
        shown = self.plan(*args)
        self.assertIn("it fits", shown)
        path = self.dir / "suggested.yaml"
        self.assertIn(f"wrote {path}", self.plan(*args, "--write", str(path)))
        recipe = path.read_text()
        self.assertIn(recipe.strip(), shown)
        for line in ("model_name_or_path: Qwen/Qwen2.5-7B-Instruct", "use_peft: true"):
            self.assertIn(line, recipe)
        rows = self.dir / "d.jsonl"
        rows.write_text('{"text": "a"}\n')
        checked = self.run_train("check", str(path), "--set", f"dataset_name={rows}", "--gpus", "2")
        self.assertEqual(checked.returncode, 0, checked.stderr)
        again = self.run_train("plan", *args, "--write", str(path))
        self.assertEqual(again.returncode, 2)
        self.assertIn("already exists", again.stderr)

    def test_a_size_and_the_memory_of_a_gpu_are_enough(self):
        path = self.dir / "suggested.yaml"
        text = self.plan("--model-size", "7B", "--gpu-memory", "32GB", "--write", str(path))
        self.assertIn("it fits", text)
        self.assertIn("7615616512 parameters", text)
        rows = self.dir / "d.jsonl"
        rows.write_text('{"text": "a"}\n')
        checked = self.run_train("check", str(path), "--set", f"dataset_name={rows}")
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_the_layouts_of_the_gspo_guide_are_planned(self):
        """The guide's constants, for three GPUs and for two."""
        guide = ROOT / "tests" / "runtime" / "config" / "recipes" / "gspo_guide.yaml"
        args = (str(guide), f"--set=POLICY_MODEL={self.model}", "--gpu-memory", "16GB")
        three = self.plan(*args, "--gpus", "3")
        self.assertIn("8 sequences per step = 4 per device x 2 ranks", three)
        self.assertEqual(self.gpus_of_roles(three), {"policy": "0, 1", "reference": "2"})
        self.assertIn("Guides recommend for 48 GiB in total: per_device_train_batch_size 4, "
                      "num_generations 8", three)
        two = self.plan(*args, "--gpus", "2", "--set=REFERENCE_GPU_ID=1", "--set=REWARD_GPU_ID=1")
        self.assertEqual(self.gpus_of_roles(two)["reference"], "1")
        self.assertIn("Guides recommend for 32 GiB in total: per_device_train_batch_size 2, "
                      "num_generations 4", two)

    def gpus_of_roles(self, text):
        """The GPUs of each role in the table of a plan."""
        rows = re.findall(r"^  ([\d, ]+?) +the (policy|reference) ", text, re.MULTILINE)
        return {role: gpus for gpus, role in rows}

    def test_gpus_of_a_role_layout_are_those_of_the_machine(self):
        recipe = self.recipe("reward_funcs: [format]", "beta: 0.1", "policy_gpus: [0, 1]",
                             "reference_gpu: 2", "num_generations: 8",
                             "per_device_train_batch_size: 4")
        text = self.plan(recipe, "--gpus", "3", "--gpu-memory", "16GB")
        self.assertIn("for 48 GiB in total: per_device_train_batch_size 4, num_generations 8", text)
        self.assertEqual(text, self.plan(recipe, "--gpu-memory", "16GB"))
        few = self.run_train("plan", recipe, "--gpus", "2", "--gpu-memory", "16GB")
        self.assertEqual(few.returncode, 2)
        self.assertIn("reference_gpu 2 needs 3 GPUs, found 2; set reference_gpu: 1", few.stderr)


if __name__ == "__main__":
    unittest.main()
