"""tests/bench/trainer_bench.py with our programs and transformers, in small shapes on CPUs."""

import re
import subprocess
import sys
import unittest

from trainer import BIN, MISSING, ROOT, environment

LIMIT = 600


@unittest.skipIf(MISSING, f"needs torch and Hugging Face's packages: {MISSING}")
class TrainerBench(unittest.TestCase):
    def bench(self, *options):
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "tests/bench/trainer_bench.py", "--tiny", "--bin", BIN,
             "--commit", "abc", *options], capture_output=True, text=True, timeout=LIMIT,
            env=environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("failed", done.stdout)
        return done.stdout

    def assert_figures(self, page, unit, *titles):
        for title in titles:
            self.assertRegex(page, rf"(?m)^\| {re.escape(title)} \| [\d,.]+ {unit} \| 0\.0 % \|")

    def test_quick_measures_its_cases(self):
        page = self.bench("--quick", "--peers", "none")
        self.assert_figures(page, "tok/s", "full 1.5B, micro-batch 4",
                            "LoRA r 16 on 7B, micro-batch 4", "generation, 1.5B, 256 sequences",
                            "full 1.5B, rows of ever new lengths, one sequence a micro-batch")
        self.assertNotIn("## Not measured", page)

    def test_every_kind_of_case_is_measured(self):
        page = self.bench("--peers", "none", "--cases",
                          "lora-7B-mb4-2gpu,qlora-7B-mb1-recomputed,packed-2k-1.5B,"
                          "decode-128-lora,grpo-2gpu,checkpoint-1.5B,start-7B-lora")
        self.assert_figures(page, "tok/s", "LoRA r 16 on 7B, micro-batch 4, 2 GPUs",
                            "QLoRA r 16 on 7B, micro-batch 1, recomputed",
                            "full 1.5B, unequal lengths packed to 2k, micro-batch 4",
                            "generation, LoRA r 16 on 1.5B, 128 sequences")
        self.assert_figures(
            page, "s", "training stands still for a checkpoint, full 1.5B (21 GB)",
            "start to first step, LoRA r 16 on 7B",
            "GRPO step, LoRA r 16 on 1.5B, 2 GPUs, 32 prompts x 8, 256 + 256 tokens")

    def test_other_programs_are_measured_beside_ours(self):
        page = self.bench("--peers", "PEFT,generate,Hugging Face Trainer", "--cases",
                          "lora-8B-mb4,decode-64,start-7B-lora")
        for name, unit in (("PEFT", "tok/s"), ("generate", "tok/s"), ("Hugging Face Trainer", "s")):
            self.assertRegex(page, rf"\| {name} \| torch 2[^|]*transformers [^|]* \| "
                                   rf"[\d,.]+ {unit} \| - \| [\d.]+ x \|")


if __name__ == "__main__":
    unittest.main()
