"""Hugging Face's Trainer with docs/examples/heartbeat_callback.py. Rank 1 suspends itself in step 6."""

import os
import signal

import torch
from heartbeat_callback import HeartbeatCallback
from transformers import Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Stop(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == 5 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGSTOP)


rows = [{"x": torch.ones(2), "labels": torch.ones(1)} for _ in range(64)]
Trainer(
    Model(),
    TrainingArguments("out", max_steps=8, per_device_train_batch_size=1, eval_strategy="steps",
                      eval_steps=2, save_strategy="steps", save_steps=4, report_to=[],
                      use_cpu=True, disable_tqdm=True),
    train_dataset=rows, eval_dataset=rows[:4], callbacks=[HeartbeatCallback(), Stop()]).train()
