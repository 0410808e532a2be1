"""Heartbeats for mgpu-run from a Hugging Face Trainer: copy this file and heartbeat.py.

    from heartbeat_callback import HeartbeatCallback

    trainer = Trainer(..., callbacks=[HeartbeatCallback()])
"""

from heartbeat import heartbeat
from transformers import TrainerCallback


def _next_phase(control):
    if control.should_evaluate:
        return "evaluation"
    return "checkpoint" if control.should_save else "training"


class HeartbeatCallback(TrainerCallback):
    """Reports the steps of the Trainer, its evaluations and its checkpoints."""

    def on_train_begin(self, args, state, control, **_):
        heartbeat(phase="loading")

    def on_step_end(self, args, state, control, **_):
        heartbeat(step=state.global_step, phase=_next_phase(control))

    def on_epoch_end(self, args, state, control, **_):
        heartbeat(phase=_next_phase(control))

    def on_evaluate(self, args, state, control, **_):
        heartbeat(phase="checkpoint" if control.should_save else "training")

    def on_save(self, args, state, control, **_):
        heartbeat()

    def on_train_end(self, args, state, control, **_):
        heartbeat(phase="ending")
