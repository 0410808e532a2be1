"""Compares AdamW with 8-bit moments with bitsandbytes' quantisation on the CPU."""

import json
import os
import shutil
import subprocess
import unittest

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # bitsandbytes compiles what runs once

import trainer
from trainer import in_order, labels_of, load_model, load_tensors, row_loss

if not trainer.MISSING:
    try:
        import bitsandbytes.functional as bnb
        import torch
    except ImportError as error:
        trainer.MISSING = str(error)

BATCH = 8
BLOCK = 256
SMALLEST = 4096  # elements of a tensor whose moments are in 8 bits


class Moment:
    """A moment in bitsandbytes' representation."""

    def __init__(self, parameter, signed):
        self.exact = parameter.numel() < SMALLEST
        self.code = bnb.create_dynamic_map(signed=signed)
        self.signed = signed
        self.shape = parameter.shape
        if self.exact:
            self.values = torch.zeros_like(parameter)
        else:
            self.codes = torch.zeros(parameter.numel(), dtype=torch.uint8)
            self.state = None

    def put(self, values):
        if self.exact:
            self.values = values.clone()
            return
        flat = values.flatten()
        theirs, self.state = bnb.quantize_blockwise(flat, code=self.code, blocksize=BLOCK)
        scales = self.state.absmax.repeat_interleave(BLOCK)[:flat.numel()]
        scaled = flat / scales.clamp_min(1e-38)
        self.codes = (scaled[:, None] - self.code).abs().argmin(1).to(torch.uint8)
        # Their look-up on the CPU is coarse: sometimes the next level, and 2e-5 for 0.
        apart = (self.code[theirs.int()] - self.code[self.codes.int()]).abs()
        next_level = (theirs.int() - self.codes.int()).abs() <= 1
        self.agree = bool((next_level | (apart < 3e-5) | (scales == 0)).all())
        if not self.signed:  # nonzero values do not become 0
            self.codes[(self.codes == 0) & (flat > 0)] = 1

    def get(self):
        if self.exact:
            return self.values
        if self.state is None:
            return torch.zeros(self.shape)
        return bnb.dequantize_blockwise(self.codes, self.state).view(self.shape)


def train_in_bnb(model, batches, rate, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-8):
    """A plain loop; returns the losses and the moments of every parameter by name."""
    moments = {name: (Moment(p.data, True), Moment(p.data, False))
               for name, p in model.named_parameters()}
    losses = []
    for step, batch in enumerate(batches, 1):
        labels, total = labels_of(batch), 0.0
        model.zero_grad()
        for row in batch:
            loss = row_loss(model, row)[0]
            (loss / labels).backward()
            total += loss.item()
        losses.append(total / labels)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for name, p in model.named_parameters():
                first, second = moments[name]
                m = betas[0] * first.get() + (1 - betas[0]) * p.grad
                v = betas[1] * second.get() + (1 - betas[1]) * p.grad ** 2
                if p.dim() > 1:
                    p.mul_(1 - rate * weight_decay)
                p.sub_(rate * (m / (1 - betas[0] ** step))
                       / ((v / (1 - betas[1] ** step)).sqrt() + eps))
                first.put(m)
                second.put(v)
    return losses, moments


class EightBit(trainer.TrainerTest):
    KEYS = dict(optim="adamw_8bit", lr_scheduler_type="constant")

    def state(self, run, step):
        return load_tensors(run.folder / f"checkpoint-{step}" / "training_state", "rank-")

    def test_levels_equal_those_of_bitsandbytes(self):
        ours = json.loads(subprocess.check_output([trainer.BIN / "model_files", "levels"]))
        for key, signed in (("signed", True), ("unsigned", False)):
            theirs = bnb.create_dynamic_map(signed=signed)
            self.assertTrue(torch.equal(torch.tensor(ours[key], dtype=torch.float32), theirs), key)

    def test_codes_after_a_step_equal_those_of_bitsandbytes(self):
        run = self.train(1, max_steps=1, weight_decay=0.1, **self.KEYS)
        model = load_model(self.model)
        _, moments = train_in_bnb(model, in_order(self.rows, BATCH, 1), 1e-3, weight_decay=0.1)
        state = self.state(run, 1)
        kept, coded, other = 0, 0, 0
        for name, (first, second) in moments.items():
            for kind, theirs in (("first", first), ("second", second)):
                ours = state[f"{kind}/{name}@0"]
                if theirs.exact:
                    self.assertEqual(ours.dtype, torch.float32)
                    self.assertLess((ours - theirs.values.flatten()).abs().max().item(), 1e-6)
                    kept += 1
                    continue
                self.assertEqual(ours.dtype, torch.uint8)
                self.assertTrue(theirs.agree)
                scales = state[f"{kind}_scales/{name}@0"]
                torch.testing.assert_close(scales, theirs.state.absmax, rtol=1e-4, atol=1e-9)
                # A block without gradients is 0 for any codes.
                there = scales.repeat_interleave(BLOCK)[:ours.numel()] > 0
                apart = (ours.int() - theirs.codes.int()).abs()[there]
                # Near 0 the levels are closer together than the sums of the two programs.
                near = (theirs.code[ours.int()] - theirs.code[theirs.codes.int()])[there].abs()
                self.assertFalse((near[apart > 1] > 1e-5).any(), f"{kind} of {name}")
                coded += apart.numel()
                other += int((apart > 0).sum())
        self.assertGreater(kept, 0)
        self.assertGreater(coded, 50_000)
        # Their gradients are summed in a different order: a few are rounded to the other level.
        self.assertLess(other / coded, 0.01, other)
        torch.testing.assert_close(run.weights()["model.embed_tokens.weight"],
                                   model.state_dict()["model.embed_tokens.weight"],
                                   rtol=0, atol=1e-5)

    def test_thirty_steps_match_a_plain_loop_and_exact_moments(self):
        keys = dict(max_steps=30, learning_rate=3e-3)
        exact = self.train(1, lr_scheduler_type="constant", **keys).column("loss")
        losses = self.train(1, **keys, **self.KEYS).column("loss")
        plain, _ = train_in_bnb(load_model(self.model), in_order(self.rows, BATCH, 30), 3e-3)
        self.assertLess(exact[-1], exact[0] * 0.9)
        self.assertNotEqual(losses, exact)
        self.assert_near(losses, plain, 5e-3, "loss")
        self.assert_near(losses[-8:], exact[-8:], 0.02, "loss")

    def test_other_ranks_and_stages_resume(self):
        """Codes of blocks with other boundaries are rounded exactly once more."""
        for begun, ways in (((2, 1), ((1, 0), (4, 3), (2, 3))), ((1, 0), ((3, 2),))):
            nproc, stage = begun
            size = dict(global_batch_size=12, per_device_train_batch_size=1)
            whole = self.train(nproc, max_steps=14, zero_stage=stage, **size, **self.KEYS)
            part = self.train(nproc, max_steps=9, zero_stage=stage, **size, **self.KEYS)
            for nproc, stage in ways:
                with self.subTest(begun=begun, nproc=nproc, stage=stage):
                    out = f"{begun}-{nproc}-{stage}"
                    shutil.copytree(part.folder, self.dir / out)
                    run = self.train(nproc, max_steps=14, zero_stage=stage, out=out, **size,
                                     **self.KEYS)
                    self.assertIn("checkpoint-9 at step 9", run.notes)
                    self.assert_near(run.column("loss"), whole.column("loss"), 2e-3, "loss")

    def test_resuming_converts_from_exact_moments_and_back(self):
        keys = dict(lr_scheduler_type="constant", zero_stage=1)
        whole = self.train(2, max_steps=14, **keys)
        out = self.train(2, max_steps=6, **keys).folder.name
        self.train(2, max_steps=10, out=out, **{**keys, "optim": "adamw_8bit"})
        run = self.train(2, max_steps=14, out=out, **keys)
        self.assertIn("checkpoint-10 at step 10", run.notes)
        self.assert_near(run.column("loss"), whole.column("loss"), 1e-2, "loss")

    def test_paged_states_are_equal_and_noted(self):
        run = self.train(1, max_steps=3, **self.KEYS)
        paged = self.train(1, max_steps=3, **{**self.KEYS, "optim": "paged_adamw_8bit"})
        self.assertEqual(paged.column("loss"), run.column("loss"))
        self.assert_same_weights(paged.weights(), run.weights())
        self.assertIn("the optimizer state stays on the GPU", paged.out + paged.err + paged.notes)

    def test_every_zero_stage_equals_one_rank(self):
        alone = self.train(1, **self.KEYS)
        for nproc, stage in ((2, 0), (2, 1), (3, 2), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                run = self.train(nproc, zero_stage=stage, per_device_train_batch_size=1,
                                 global_batch_size=6 if nproc == 3 else 8, **self.KEYS)
                if nproc != 3:
                    self.assert_near(run.column("loss"), alone.column("loss"), 5e-3, "loss")
                self.assertLess(run.column("loss")[-1], run.column("loss")[0])

    def test_a_resumed_run_is_bitwise_equal_to_an_uninterrupted_one(self):
        for nproc, stage in ((1, 0), (2, 0), (2, 2), (2, 3)):
            with self.subTest(nproc=nproc, stage=stage):
                keys = dict(zero_stage=stage, **self.KEYS)
                whole = self.train(nproc, max_steps=14, **keys)
                part = self.train(nproc, max_steps=9, **keys)
                run = self.train(nproc, max_steps=14, out=part.folder.name, **keys)
                self.assertIn("checkpoint-9 at step 9", run.notes)
                self.assertEqual(run.column("loss"), whole.column("loss"))
                self.assert_same_weights(run.weights(), whole.weights())
                self.assert_same_weights(self.state(run, 14), self.state(whole, 14))


if __name__ == "__main__":
    unittest.main()
