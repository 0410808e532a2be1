"""Recipes with the keys of axolotl, LLaMA-Factory, alignment-handbook, open-r1 and TRL.

The recipes are written here, with the keys and values that people use there. Each key has its
effect, shown by what a run writes, or a note.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

import trainer
from trainer import write_rows

HF = pathlib.Path(sys.executable).parent / "hf"
# The keys that axolotl's examples have in common, as an adapter's recipe. MODEL, DATA and OUT are
# replaced; nothing else.
AXOLOTL = """\
base_model: MODEL
model_type: LlamaForCausalLM
tokenizer_type: AutoTokenizer
load_in_8bit: false
load_in_4bit: false
strict: false
plugins:
  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin
liger_rope: true
liger_rms_norm: true
liger_layer_norm: true
datasets:
  - path: DATA
    type: chat_template
chat_template: chatml
dataset_prepared_path:
val_set_size: 0.1
output_dir: OUT
adapter: lora
lora_model_dir:
sequence_len: 128
sample_packing: true
eval_sample_packing: false
lora_r: 8
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
lora_target_modules:
  - q_proj
  - v_proj
wandb_project:
wandb_entity:
wandb_watch:
wandb_name:
wandb_log_model:
gradient_accumulation_steps: 2
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
resume_from_checkpoint:
logging_steps: 1
attn_implementation: flash_attention_2
loss_watchdog_threshold: 50.0
loss_watchdog_patience: 3
warmup_ratio: 0.1
evals_per_epoch: 0
saves_per_epoch: 1
weight_decay: 0.0
fsdp:
fsdp_config:
special_tokens:
  pad_token: <|endoftext|>
"""
LLAMA_FACTORY = """\
### model
model_name_or_path: MODEL
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: full
deepspeed: DEEPSPEED

### dataset
dataset: DATA
template: qwen3_nothink
cutoff_len: 128
overwrite_cache: true
preprocessing_num_workers: 2
dataloader_num_workers: 1

### output
output_dir: OUT
logging_steps: 1
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none  # choices: [none, wandb, tensorboard, swanlab, mlflow]

### train
per_device_train_batch_size: 4
gradient_accumulation_steps: 1
learning_rate: 1.0e-5
num_train_epochs: 1.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: false
ddp_timeout: 180000000
resume_from_checkpoint: null
"""
# A ZeRO file with the keys of the examples.
STAGE_3 = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True, "fp16": {"enabled": "auto", "loss_scale": 0},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9, "max_live_parameters": 0, "max_reuse_distance": 0,
        "stage3_gather_16bit_weights_on_model_save": True}}
TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'user' %}{{ '<|user|>' + "
            "message['content'] }}{% else %}{{ '<|assistant|>' + message['content'] + eos_token }}"
            "{% endif %}{% endfor %}")
HANDBOOK = f"""\
model_name_or_path: MODEL
model_revision: main
torch_dtype: float32
attn_implementation: sdpa
chat_template: {json.dumps(TEMPLATE)}
dataset_name: DATA
dataset_num_proc: 2
eos_token: <|im_end|>
do_eval: false
eval_strategy: 'no'
gradient_accumulation_steps: 1
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
hub_model_id: some-model
hub_strategy: every_save
hub_private_repo: true
learning_rate: 4.0e-05
log_level: info
logging_steps: 1
logging_strategy: steps
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs:
  min_lr_rate: 0.1
packing: false
max_grad_norm: 0.2
max_length: 128
max_steps: 2
output_dir: OUT
overwrite_output_dir: true
per_device_eval_batch_size: 1
per_device_train_batch_size: 2
push_to_hub: true
report_to:
- tensorboard
save_strategy: epoch
save_total_limit: 1
seed: 42
use_liger_kernel: true
warmup_ratio: 0.03
"""
FAKE_HF = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["HF_LOG"], "a") as log:
    log.write(json.dumps([sys.argv[1:], os.environ.get("HF_TOKEN")]) + "\\n")
if os.environ.get("HF_FAILS"):
    print("Traceback\\nHfHubHTTPError: 403 Forbidden: no rights to write", file=sys.stderr)
    sys.exit(1)
"""


def chats(count):
    return [{"messages": [{"role": "user", "content": f"{n} + 1?"},
                          {"role": "assistant", "content": str(n + 1)}]} for n in range(count)]


class RecipesOfOthers(trainer.TrainerTest):
    def setUp(self):
        super().setUp()
        self.chats = write_rows(self.dir / "chats.jsonl", chats(24))
        self.out = self.dir / "out"

    def written(self, text, **others):
        values = {"MODEL": self.model, "DATA": self.chats, "OUT": self.out, **others}
        for name, value in values.items():
            text = text.replace(f" {name}\n", f" {value}\n")
        path = self.dir / "theirs.yaml"
        path.write_text(text)
        return path

    def program(self, *words, status=0, **env):
        job = self.start(*words, program=str(trainer.BIN / "mgpu-train"), stderr=subprocess.STDOUT,
                         env={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **env})
        out = job.communicate(timeout=trainer.LIMIT * trainer.SLOWER)[0].decode()
        self.assertEqual(job.returncode, status, out)
        return out

    def metrics(self):
        return [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]

    def steps(self):
        return [record["step"] for record in self.metrics() if record["event"] == "train"]

    def test_an_adapter_in_the_way_of_axolotl(self):
        recipe = self.written(AXOLOTL)
        text = self.program("check", recipe)
        for note in ("model_type: has no effect", "tokenizer_type: has no effect",
                     "CutCrossEntropyPlugin has no effect", "attn_implementation: has no effect",
                     "lora_target_modules: adds nothing to lora_target_linear: true",
                     "evals_per_epoch: has no effect", "liger_layer_norm: has no effect"):
            self.assertIn(note, text)
        self.program(recipe, "--single")
        adapter = json.loads((self.out / "adapter_config.json").read_text())
        self.assertEqual(adapter["r"], 8)
        self.assertEqual(len(adapter["target_modules"]), 7)
        self.assertIn("<|im_start|>", (self.out / "chat_template.jinja").read_text())
        self.assertFalse([record for record in self.metrics() if record["event"] == "eval"])

    def test_full_fine_tuning_in_the_way_of_llama_factory(self):
        deepspeed = self.dir / "ds_z3.json"
        deepspeed.write_text(json.dumps(STAGE_3))
        recipe = self.written(LLAMA_FACTORY, DEEPSPEED=deepspeed)
        text = self.program("check", recipe)
        self.assertRegex(text, r"zero_stage +3")
        self.assertIn("trust_remote_code: has no effect", text)
        job = self.start("--nproc", 2, recipe, program=str(trainer.BIN / "mgpu-run"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        out, err = job.communicate(timeout=trainer.LIMIT * trainer.SLOWER)
        self.assertEqual(job.returncode, 0, (out + err).decode())
        self.assertEqual(self.steps(), [1, 2, 3])  # 24 rows, 8 in each step
        saved = trainer.transformers.AutoTokenizer.from_pretrained(self.out)
        self.assertEqual(saved.apply_chat_template([{"role": "user", "content": "a"}],
                                                   tokenize=False, add_generation_prompt=True),
                         "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n")

    def with_fake_hf(self, **env):
        folder = self.dir / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "hf").write_text(FAKE_HF)
        (folder / "hf").chmod(0o755)
        self.log = self.dir / "hf.log"
        return {"PATH": f"{folder}:{os.environ['PATH']}", "HF_LOG": str(self.log), **env}

    def test_a_template_in_the_recipe_and_another_eos_token_are_saved_with_the_model(self):
        recipe = self.written(HANDBOOK)
        self.program(recipe, "--single", **self.with_fake_hf())
        saved = trainer.transformers.AutoTokenizer.from_pretrained(self.out)
        self.assertEqual(saved.eos_token, "<|im_end|>")
        ended = saved.apply_chat_template([{"role": "user", "content": "a"},
                                           {"role": "assistant", "content": "b"}], tokenize=False)
        self.assertEqual(ended, "<|user|>a<|assistant|>b<|im_end|>")
        for file in ("config.json", "generation_config.json"):
            self.assertEqual(json.loads((self.out / file).read_text())["eos_token_id"],
                             saved.convert_tokens_to_ids("<|im_end|>"), file)
        self.assertEqual(len(trainer.load_tensors(self.out)["model.embed_tokens.weight"]),
                         max(trainer.VOCABULARY, len(saved)))

    def test_the_final_model_is_uploaded_by_hf(self):
        recipe = self.written(HANDBOOK)
        out = self.program(recipe, "--single", **self.with_fake_hf(HF_TOKEN="hf_mine"))
        (words, token), = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.assertEqual(words[:4], ["upload", "some-model", str(self.out), "."])
        self.assertIn("--private", words)
        self.assertIn("*.safetensors", words)
        self.assertEqual(words[words.index("--exclude") + 1], "checkpoint-*")
        self.assertEqual(token, "hf_mine")
        self.assertIn("uploaded some-model", out)

    def test_a_failed_upload_is_one_line_and_leaves_the_model(self):
        recipe = self.written(HANDBOOK)
        out = self.program(recipe, "--single", **self.with_fake_hf(HF_FAILS="1"))
        line, = [line for line in out.splitlines() if line.startswith("mgpu-train: ")]
        self.assertEqual(line, "mgpu-train: cannot upload some-model: HfHubHTTPError: 403 "
                               "Forbidden: "
                               f"no rights to write; the model is in {self.out}; to try again: hf "
                               f"upload some-model {self.out} . --exclude 'checkpoint-*'")
        self.assertTrue((self.out / "model.safetensors").exists())

    @unittest.skipUnless(HF.exists(), f"{HF} does not exist")
    def test_the_real_hf_fails_in_one_line_when_there_is_no_hub(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("HF_HUB_OFFLINE", None)
            out = self.program(self.written(HANDBOOK), "--single",
                               PATH=f"{HF.parent}:{os.environ['PATH']}", HF_TOKEN="hf_mine",
                               HF_ENDPOINT="http://127.0.0.1:1", HF_HOME=str(self.dir / "home"))
        line, = [line for line in out.splitlines() if line.startswith("mgpu-train: ")]
        self.assertIn("cannot upload some-model: ", line)
        self.assertIn("to try again: hf upload some-model", line)

    def test_a_new_start_deletes_only_what_earlier_runs_saved(self):
        self.train(1, out="out", save_steps=4, max_steps=8)
        mine = self.out / "checkpoint-mine"
        mine.mkdir()
        (self.out / "checkpoint-5").mkdir()  # without a manifest
        (self.out / "notes.txt").write_text("keep")
        again = self.train(1, out="out", overwrite_output_dir=True, save_steps=3, max_steps=3)
        self.assertEqual(self.steps(), [1, 2, 3])
        self.assertNotIn("resuming", again.out)
        self.assertEqual({path.name for path in self.out.glob("checkpoint-*")},
                         {"checkpoint-3", "checkpoint-5", "checkpoint-mine"})
        self.assertEqual((self.out / "notes.txt").read_text(), "keep")

    def test_a_new_start_does_not_delete_a_model_of_others(self):
        self.out.mkdir()
        (self.out / "config.json").write_text("{}")
        (self.out / "model-00001-of-00002.safetensors").write_text("theirs")
        self.train(1, out="out", overwrite_output_dir=True, max_steps=1, save_strategy="no",
                   save_final_model=False)
        self.assertEqual((self.out / "model-00001-of-00002.safetensors").read_text(), "theirs")

    def test_a_new_start_resumes_when_its_ranks_are_restarted(self):
        self.train(1, out="out", save_steps=2, max_steps=6)
        job = self.start_training(1, out="out", options=("--max-restarts", 1), save_steps=50,
                                  max_steps=400, overwrite_output_dir=True)
        trainer.until(lambda: (self.out / "checkpoint-50" / "manifest.json").exists(), 60)
        worker, = self.workers(job)
        os.kill(worker, 9)
        run = self.end(job)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertIn("resuming from", run.out)
        self.assertFalse((self.out / "checkpoint-6").exists())
        self.assertEqual(max(self.steps()), 400)

    def workers(self, job):
        return [pid for pid in trainer.children(job.pid)
                if trainer.comm(pid).startswith("mgpu-train")]

    def test_a_new_start_refuses_to_delete_the_model_that_it_trains(self):
        self.train(1, out="out", max_steps=2, save_steps=2)
        run = self.end(self.start_training(
            1, out="out", overwrite_output_dir=True,
            model_name_or_path=str(self.out / "checkpoint-2")))
        self.assertNotEqual(run.status, 0)
        self.assertIn("is in output_dir and would be deleted; set another output_dir", run.err)
        self.assertTrue((self.out / "checkpoint-2" / "model.safetensors").exists())

    def test_a_loss_that_stays_too_high_ends_training(self):
        run = self.train(1, loss_watchdog_threshold=0.001, loss_watchdog_patience=3, max_steps=10)
        self.assertIn("the loss was above loss_watchdog_threshold 0.001 for 3 steps in a row: "
                      "stopping early", run.notes)
        self.assertLess(max(run.column("step")), 6)
        self.assertTrue((run.folder / "model.safetensors").exists())
        run = self.train(1, loss_watchdog_threshold=1000.0, max_steps=4)
        self.assertEqual(max(run.column("step")), 4)

    def test_a_default_system_message_is_trained_on(self):
        for text, more in (("", 0), ("Be brief.", 1)):
            with self.subTest(text):
                self.out = self.dir / f"out-{more}"
                recipe = self.written(HANDBOOK.replace("push_to_hub: true", "push_to_hub: false")
                                      .replace(f"chat_template: {json.dumps(TEMPLATE)}",
                                               "chat_template: chatml\n"
                                               f"default_system_prompt: {json.dumps(text)}"))
                self.program(recipe, "--single")
                saved = (self.out / "chat_template.jinja").read_text()
                self.assertEqual(saved.count("Be brief."), more)

    def test_rows_that_equal_an_earlier_one_are_left_out(self):
        twice = write_rows(self.dir / "twice.jsonl", chats(8) + chats(12))
        run = self.train(1, dataset_name=str(twice), dataset_exact_deduplication=True,
                         eval_dataset=str(twice), eval_strategy="epoch", max_steps=-1,
                         num_train_epochs=1,
                         per_device_train_batch_size=4, global_batch_size=4, chat_template="chatml")
        self.assertIn("dataset_exact_deduplication: 8 of 20 training rows equal an earlier one and "
                      "are left out", run.notes)
        self.assertIn("8 of 20 evaluation rows equal", run.notes)
        self.assertEqual(run.column("step"), [1, 2, 3])  # 12 rows, 4 in each step

    def test_the_default_roles_of_axolotl_are_those_of_sharegpt(self):
        rows = [{"conversations": [{"from": "human", "value": f"{n} + 1?"},
                                   {"from": "gpt", "value": str(n + 1)}]} for n in range(24)]
        write_rows(self.chats, rows)
        fields = ("    type: chat_template\n    field_messages: conversations\n"
                  "    message_property_mappings:\n      role: from\n      content: value\n")
        recipe = self.written(AXOLOTL.replace("    type: chat_template\n", fields))
        self.program(recipe, "--single")
        self.assertTrue(self.steps())

    def test_a_missing_template_file_is_found_by_check(self):
        recipe = self.recipe(chat_template="nowhere.jinja")
        self.assertIn("chat_template: ", self.program("check", recipe, status=2))
        recipe = self.recipe(chat_template="{% for m in messages %}{{ m.content }}")
        self.assertIn("chat_template: chat template line", self.program("check", recipe, status=2))


if __name__ == "__main__":
    unittest.main()
