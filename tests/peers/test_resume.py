"""Going on after the end, however it came."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import torch

import trainer


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        trainer.make_model("llama", cls.dir / "model")
        trainer.write_rows(cls.dir / "rows.jsonl", trainer.make_rows(20, seed=7))
        # Three steps an epoch: twelve steps are four epochs.
        cls.recipe = trainer.write_recipe(
            cls.dir / "recipe.yaml", model_name_or_path=str(cls.dir / "model"),
            dataset_name=str(cls.dir / "rows.jsonl"), dataset_prepared_path=str(cls.dir / "cache"),
            global_batch_size=8, per_device_train_batch_size=4, max_steps=12, warmup_steps=3,
            lr_scheduler_type="cosine", shuffle_dataset=True, save_steps=5)
        trainer.train(cls.recipe, ranks=2, output_dir=cls.dir / "straight")

    def new_output(self):
        return self.dir / f"out{len(list(self.dir.glob('out*')))}"

    def assert_weights(self, output, tolerance):
        wanted = trainer.weights(self.dir / "straight")
        for name, tensor in trainer.weights(output).items():
            far = float((tensor - wanted[name]).abs().max())
            self.assertLessEqual(far, tolerance, name)

    def test_killed_and_started_again_it_ends_bit_for_bit_the_same(self):
        output = self.new_output()
        job = subprocess.Popen(trainer.command(self.recipe, 2, {"output_dir": output}),
                               env=trainer.ENVIRONMENT, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not list(output.glob("checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        self.assertIn("at step", trainer.train(self.recipe, ranks=2, output_dir=output))
        self.assert_weights(output, 0.0)

    def test_going_on_in_the_second_epoch_is_exact(self):
        for killed_after in (5, 10):
            output = self.new_output()
            first = trainer.train(self.recipe, ranks=2, output_dir=output)
            self.assertIn("checkpoint-12", first)
            # As if it had been killed there: what came later is gone.
            for folder in output.glob("checkpoint-*"):
                if int(folder.name.split("-")[1]) > killed_after:
                    for path in sorted(folder.rglob("*"), reverse=True):
                        path.unlink() if path.is_file() else path.rmdir()
                    folder.rmdir()
            printed = trainer.train(self.recipe, ranks=2, output_dir=output)
            self.assertIn(f"at step {killed_after} of 12", printed)
            self.assert_weights(output, 0.0)

    def resumed_elsewhere(self, ranks, **settings):
        output = self.new_output()
        trainer.train(self.recipe, ranks=2, output_dir=output)
        for path in sorted((output / "checkpoint-12").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (output / "checkpoint-12").rmdir()
        printed = trainer.train(self.recipe, ranks=ranks, output_dir=output, **settings)
        self.assertIn("at step 10 of 12", printed)
        self.assert_weights(output, 2e-5)

    def test_another_number_of_ranks_goes_on(self):
        self.resumed_elsewhere(1)
        self.resumed_elsewhere(4, per_device_train_batch_size=2)

    def test_another_zero_stage_goes_on(self):
        self.resumed_elsewhere(2, zero_stage=3)
        self.resumed_elsewhere(4, zero_stage=2, per_device_train_batch_size=2)

    def test_a_flipped_bit_in_the_newest_checkpoint_is_told_and_the_older_one_used(self):
        output = self.new_output()
        trainer.train(self.recipe, ranks=2, output_dir=output)
        file = output / "checkpoint-12" / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[-5] ^= 1
        file.unlink()  # the model beside the checkpoints shares its bytes
        file.write_bytes(data)
        printed = trainer.train(self.recipe, ranks=2, output_dir=output)
        self.assertIn("model.safetensors", printed)
        self.assertIn("at step 10 of 12", printed)
        self.assert_weights(output, 0.0)

    def test_sigterm_saves_and_a_later_run_goes_on(self):
        output = self.new_output()
        job = subprocess.Popen(
            trainer.command(self.recipe, 2, {"output_dir": output, "max_steps": 100000,
                                             "save_steps": 1000000}),
            env=trainer.ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in job.stdout:
            if line.startswith("step 5/"):
                break
        job.send_signal(signal.SIGTERM)
        job.stdout.read()
        job.stdout.close()
        self.assertEqual(job.wait(60), 143)
        saved = list(output.glob("checkpoint-*"))
        self.assertEqual(len(saved), 1)
        step = int(saved[0].name.split("-")[1])
        printed = trainer.train(self.recipe, ranks=2, output_dir=output, max_steps=step + 1,
                                save_steps=1000000)
        self.assertIn(f"at step {step} of {step + 1}", printed)

    def test_another_global_batch_is_refused_with_what_to_set(self):
        output = self.new_output()
        trainer.train(self.recipe, ranks=2, output_dir=output)
        printed = trainer.train(self.recipe, ranks=2, output_dir=output, global_batch_size=16,
                                max_steps=20, expect=1)
        self.assertIn("set global_batch_size: 8", printed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
