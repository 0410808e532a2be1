"""Compares logits, the loss and every gradient with transformers, in fp32, bf16 and fp16.

In 16 bits the error relative to fp32 must be at most 1.5 times that of torch's own arithmetic in
the same type. In fp16 both sides scale the loss. If a GPU is visible, both sides compute on it.
"""

import os
import subprocess
import unittest

import trainer
from trainer import BIN, load_tensors, make_model, make_rows, write_rows

try:
    import torch
    import transformers
except ImportError:
    torch = None

MODELS = {
    "qwen2": ("qwen2", {}),
    "qwen2-tied": ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3-tied": ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "llama": ("llama", {}),
    "llama-3": ("llama", {"num_key_value_heads": 1, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "mistral": ("mistral", {}),
    "mistral-window": ("mistral", {"sliding_window": 60}),  # as long as the longest row
    "mistral-v0.3": ("mistral", {"sliding_window": None, "head_dim": 32}),
    "llama-2": ("llama", {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True}),
}


LOSS_SCALE = 1024  # of gradients_of in fp16


def theirs(folder, rows, dtype, device):
    """Logits of each row, the loss, and every gradient, computed by transformers."""
    scale = LOSS_SCALE if dtype == torch.float16 else 1
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device)
    labels = sum(sum(label >= 0 for label in row["labels"][1:]) for row in rows)
    logits, loss = [], 0.0
    for row in rows:
        ids = torch.tensor([row["input_ids"]], device=device)
        out = model(ids).logits[0].float()
        logits.append(out.detach())
        part = torch.nn.functional.cross_entropy(
            out[:-1], torch.tensor(row["labels"][1:], device=device), reduction="sum") / labels
        (part * scale).backward()
        loss += part.item()
    result = {name: parameter.grad.float().cpu() / scale
              for name, parameter in model.named_parameters()}
    return {"logits": torch.cat(logits).cpu(), "loss": torch.tensor([loss]), **result}


def distance(ours, truth):
    return (ours.double() - truth.double()).norm().item()


class Gradients(trainer.TrainerTest):
    def setUp(self):
        super().setUp()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.rows = make_rows(6, longest=60)
        self.data = write_rows(self.dir / "rows.jsonl", self.rows)

    def ours(self, folder, dtype):
        out = self.dir / f"{folder.name}-{dtype}"
        out.mkdir()
        subprocess.run([BIN / "gradients_of", folder, self.data, out, dtype], check=True)
        results = load_tensors(out)
        return {name: value.reshape(self.shapes[name]) for name, value in results.items()}

    def each_model(self):
        for name, (family, options) in MODELS.items():
            with self.subTest(name):
                folder = make_model(self.dir / name, family, **options)
                truth = theirs(folder, self.rows, torch.float32, self.device)
                self.shapes = {key: value.shape for key, value in truth.items()}
                yield folder, truth

    def test_fp32_gradients_equal_transformers(self):
        for folder, truth in self.each_model():
            got = self.ours(folder, "fp32")
            self.assertEqual(sorted(got), sorted(truth))
            for name, value in truth.items():
                self.assertLessEqual(distance(got[name], value), 1e-4 * value.norm().item(), name)

    def test_bf16_gradients_are_as_accurate_as_transformers(self):
        self.assert_as_accurate(torch.bfloat16, "bf16", 1e-2)

    def test_fp16_gradients_are_as_accurate_as_transformers(self):
        self.assert_as_accurate(torch.float16, "fp16", 1e-3)

    def assert_as_accurate(self, dtype, word, loss_limit):
        for folder, truth in self.each_model():
            half = theirs(folder, self.rows, dtype, self.device)
            got = self.ours(folder, word)
            ours = {name: distance(got[name], value) for name, value in truth.items()}
            torchs = {name: distance(half[name], value) for name, value in truth.items()}
            for name, value in truth.items():
                if name == "loss":  # a single number may be accurate by chance
                    self.assertLessEqual(ours[name], loss_limit * value.item())
                else:
                    self.assertLessEqual(ours[name], 1.5 * torchs[name], name)
            if "MGPU_TELL" in os.environ:
                self.tell(folder.name, ours, torchs)

    def tell(self, model, ours, torchs):
        """Our error compared with torch's."""
        print(model, *(f"{name} {ours[name] / torchs[name]:.2f}" for name in
              ("logits", "model.embed_tokens.weight", "model.norm.weight")), "worst",
              f"{max(ours[n] / torchs[n] for n in ours if n != 'loss'):.2f}", flush=True)


if __name__ == "__main__":
    unittest.main()
