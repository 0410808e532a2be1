"""A rank runs out of memory: the trainer computes the same steps with less.

Within an attempt the memory really runs out: a limit of the kernel (RLIMIT_DATA), between what the
largest step needs whole and what it needs in halves, makes the allocator fail. Attempts that end
are scripts with the message of a GPU: without a GPU nothing else counts as a GPU OOM.
"""

import json
import pathlib
import sys

from trainer import BIN, TrainerTest, make_rows, write_rows

# Runs mgpu-train, and writes down the most memory that it had allocated, or limits it. Its heap
# never shrinks, so the last look sees the peak.
PROGRAM = '''import os, pathlib, resource, subprocess, sys
folder, limits, *command = sys.argv[1:]
limit = dict(pair.split("=") for pair in limits.split(",") if pair).get(os.environ["RANK"])
if limit:
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
if limits:
    os.execv(command[0], command)
child, most = subprocess.Popen(command), 0
while child.poll() is None:
    status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
    most = max([most, *(int(line.split()[1]) for line in status.splitlines()
                        if line.startswith("VmData"))])
    try:
        child.wait(0.005)
    except subprocess.TimeoutExpired:
        pass
pathlib.Path(folder, "allocated-" + os.environ["RANK"]).write_text(str(most << 10))
sys.exit(child.returncode)
'''
STEP = 16  # sequences
LARGE_STEP = 3


class LimitedMemoryTest(TrainerTest):
    # Wide layers: the activations need most of the memory, and little computation.
    model_options = {"hidden_size": 32, "intermediate_size": 8192, "max_position_embeddings": 2048}
    large_step = LARGE_STEP + 1
    whole = None  # the run with enough memory, and what its ranks had allocated

    def setUp(self):
        super().setUp()
        self.write(make_rows(STEP, 2, 200, 200))
        self.program = self.dir / "program.py"
        self.program.write_text(PROGRAM)

    def write(self, large):
        rows = make_rows(6 * STEP, longest=16)
        rows[STEP * LARGE_STEP:STEP * (LARGE_STEP + 1)] = large
        write_rows(self.data, rows)

    def limited(self, *args, **keys):
        return self.end(self.start_limited(*args, **keys))

    def start_limited(self, limits="", nproc=2, options=(), out=None, ooms=0, **keys):
        """Trains 6 steps, the fourth of which is large. `limits`: RANK=BYTES,..."""
        self.runs += 1
        folder = self.dir / (out or f"run-{self.runs}")
        recipe = self.recipe(**{"global_batch_size": STEP, "max_steps": 6, "max_length": 1600,
                                "per_device_train_batch_size": STEP // nproc,
                                "save_strategy": "no", **keys})
        command = [BIN / "mgpu-train", recipe, f"--set=output_dir={folder}"]
        job = self.start("--nproc", nproc, *options, "/usr/bin/env", f"MGPU_OOM_COUNT={ooms}",
                         sys.executable, self.program, self.dir, limits, *command,
                         program=str(BIN / "mgpu-run"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        job.folder = folder
        return job

    def run_with_enough_memory(self):
        if type(self).whole is None:
            run = self.limited()
            self.assertEqual(run.status, 0, run.err)
            allocated = [int((self.dir / f"allocated-{rank}").read_text()) for rank in (0, 1)]
            run.column = {key: run.column(key) for key in ("loss", "grad_norm")}.__getitem__
            run.weights = lambda weights=run.weights(): weights
            type(self).whole = run, allocated
        return type(self).whole

    def limits(self, *ranks):
        """The large step does not fit whole, but in halves."""
        allocated = self.run_with_enough_memory()[1]
        return ",".join(f"{rank}={allocated[rank] - (100 << 20)}" for rank in ranks)

    def assert_divides(self, *ranks, **keys):
        run = self.limited(self.limits(*ranks), **keys)
        self.assertEqual(run.status, 0, run.out + run.err)
        who = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
        self.assertIn(f"step {self.large_step}: {who} ran out of memory; each micro-batch is now divided into 2",
                      run.notes)
        self.assert_same_course(run, self.run_with_enough_memory()[0], rtol=1e-4, atol=1e-4)


class DividedMicroBatches(LimitedMemoryTest):
    def test_one_of_two_ranks_divides_its_micro_batches_and_the_losses_are_the_same(self):
        self.assert_divides(1, zero_stage=0)

    def test_both_ranks_divide_their_micro_batches(self):
        self.assert_divides(0, 1)

    def test_a_rank_divides_its_micro_batches_while_the_other_reduces_gradients(self):
        self.assert_divides(0, zero_stage=2)

    def test_a_rank_divides_its_micro_batches_while_the_other_gathers_weights(self):
        self.assert_divides(1, zero_stage=3)

    def test_a_resumed_run_goes_on_with_the_pieces_of_its_checkpoint(self):
        limits = self.limits(1)
        self.limited(limits, out="run", max_steps=5, save_strategy="steps", save_steps=5,
                     lr_scheduler_type="constant")
        run = self.limited(limits, out="run", max_steps=6, save_strategy="steps", save_steps=5,
                           lr_scheduler_type="constant", resume_with_changes=True)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertIn("an earlier attempt ran out of memory; each micro-batch is divided into 2",
                      run.notes)

    def test_a_sequence_that_does_not_fit_alone_ends_the_job_with_this_cause(self):
        """The other rank, which waits in a collective, ends too."""
        self.limits(1)
        self.write(make_rows(STEP - 1, 2, 8, 8) + make_rows(1, 3, 1600, 1600))
        run = self.limited(self.limits(0, 1))
        self.assertEqual(run.status, 1, run.out + run.err)
        self.assertIn("cause   ", run.err)
        self.assertIn("DefaultCPUAllocator: can't allocate memory", run.err)
        # A restart does not try smaller micro-batches, which cannot help.
        self.assertEqual(json.loads((run.folder / "oom.json").read_text())["changes"],
                         [f"per_device_train_batch_size: {size}" for size in (4, 2, 1)])

    def test_with_oom_restart_nothing_is_divided(self):
        run = self.limited(self.limits(1), oom="restart")
        self.assertEqual(run.status, 1, run.out + run.err)
        self.assertNotIn("divided", run.notes)


class Recomputation(LimitedMemoryTest):
    # Recomputation saves the activations of all layers but one.
    model_options = {**LimitedMemoryTest.model_options, "num_hidden_layers": 8}

    def test_an_attempt_that_recomputes_layers_allocates_less(self):
        self.write(make_rows(STEP - 1, 2, 8, 8) + make_rows(1, 3, 1600, 1600))
        allocated = []
        for ooms in (0, 1):
            run = self.limited(nproc=1, ooms=ooms, per_device_train_batch_size=1, max_steps=4)
            self.assertEqual(run.status, 0, run.out + run.err)
            allocated.append(int((self.dir / "allocated-0").read_text()))
        self.assertIn("the same steps are now computed with gradient_checkpointing: true", run.notes)
        self.assertLess(allocated[1], allocated[0] - (150 << 20))


class GrpoUpdates(LimitedMemoryTest):
    large_step = 1

    def limited(self, limits="", nproc=2, **keys):
        rewards = {"letters": {"regex": "[a-z]{2}", "otherwise": -0.5}, "digits": {"regex": "[0-9]"}}
        write_rows(self.data, [{"prompt": f"{n}+{n * 7 % 10}="} for n in range(24)])
        grpo = {"task": "grpo", "reward_funcs": list(rewards), "reward_rules": rewards,
                "num_generations": 24, "global_batch_size": 24, "max_completion_length": 96,
                "per_device_train_batch_size": 24 // nproc, "max_steps": 2, "max_length": None}
        return super().limited(limits, nproc, **{**grpo, **keys})

    def test_a_rank_divides_its_micro_batches_and_the_losses_are_the_same(self):
        for keys in (dict(zero_stage=0), dict(zero_stage=3), dict(micro_batch_tokens=100000)):
            with self.subTest(**keys):
                self.assert_divides(1, **keys)


class RestartedAttempts(TrainerTest):
    def failing(self, ooms, nproc=1, out=None, before="", **keys):
        """The first attempts end with a message of CUDA, the next one trains."""
        self.runs += 1
        folder = self.dir / (out or f"run-{self.runs}")
        recipe = self.recipe(**{"per_device_train_batch_size": 8 // nproc, "logging_steps": 1,
                                "max_steps": 4, "save_strategy": "no", **keys})
        script = (f'{before} [ $MGPU_OOM_COUNT -ge {ooms} ] && exec {BIN / "mgpu-train"} {recipe} '
                  f'--set=output_dir={folder}; echo "CUDA out of memory. Tried" >&2; exit 1')
        job = self.start("--nproc", nproc, "--max-restarts", ooms + 2, "--retry-delay", 0, "/bin/sh", "-c", script,
                         program=str(BIN / "mgpu-run"),
                         env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        job.folder = folder
        return self.end(job)

    def assert_trains(self, ooms, settings, nproc=1, **keys):
        run = self.failing(ooms, nproc, **keys)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertIn(f"the same steps are now computed with {settings}", run.notes)
        return run

    def test_each_attempt_has_the_next_remedy_and_the_losses_are_the_same(self):
        whole = self.failing(0)
        self.assertNotIn("out of memory", whole.notes)
        one = self.assert_trains(1, "per_device_train_batch_size: 4")
        self.assertIn("8 sequences per step = 4 per device x 1 rank x 2 accumulation", one.notes)
        four = self.assert_trains(4, "per_device_train_batch_size: 1, gradient_checkpointing: true")
        for run in (one, four):
            self.assert_same_course(run, whole, rtol=1e-5, atol=1e-5)

    def test_the_last_remedy_shards_more(self):
        whole = self.failing(0, 2)
        run = self.assert_trains(
            6, "per_device_train_batch_size: 1, gradient_checkpointing: offload, zero_stage: 3", 2)
        self.assert_same_course(run, whole, rtol=1e-5, atol=1e-5)

    def test_each_higher_stage_has_its_own_collectives(self):
        for ooms, collective in ((0, "all-reduce of gradients"), (1, "reduce-scatter of gradients"),
                                 (3, "all-gather of weights")):
            with self.subTest(ooms=ooms):
                run = self.failing(ooms, 2, per_device_train_batch_size=1, zero_stage=0,
                                   gradient_checkpointing="offload", trace_steps=[2])
                self.assertEqual(run.status, 0, run.out + run.err)
                traces = [path.read_text() for path in (run.folder / "traces").rglob("*.json")]
                self.assertTrue(any(collective in trace for trace in traces), len(traces))

    def test_a_resumed_run_goes_on_with_the_settings_of_its_checkpoint(self):
        keys = {"out": "run", "save_strategy": "steps", "save_steps": 2}
        self.assert_trains(1, "per_device_train_batch_size: 4", **keys)
        self.assert_trains(0, "per_device_train_batch_size: 4", **keys)
        self.assert_trains(1, "per_device_train_batch_size: 2", **keys)

    def test_a_remedy_is_not_tried_twice_when_the_recipe_changes(self):
        keys = {"out": "run", "save_strategy": "steps", "save_steps": 2}
        self.assert_trains(1, "per_device_train_batch_size: 4", **keys)
        keys["per_device_train_batch_size"] = 4
        run = self.failing(0, **keys)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertNotIn("the same steps are now computed", run.out)  # notes has those of before
        self.assert_trains(1, "per_device_train_batch_size: 2", **keys)

    def test_rank_0_may_move_to_another_node_between_two_attempts(self):
        """A second lack of memory in the job is answered once, although the node of rank 0, with
        its own cookie, is another one."""
        train = f'{BIN / "mgpu-train"} {self.dir / "first.yaml"} --set=output_dir={self.dir / "run"}'
        recipe = self.recipe(per_device_train_batch_size=4, max_steps=2, save_strategy="steps",
                             save_steps=2, lr_scheduler_type="constant")
        (self.dir / "first.yaml").write_text(pathlib.Path(recipe).read_text())
        before = ('export MGPU_JOB_COOKIE=node-$(( (RANK + MGPU_OOM_COUNT) % 2 * 11 )); '
                  f'[ $MGPU_OOM_COUNT = 1 ] && {train};')
        run = self.assert_trains(2, "per_device_train_batch_size: 1", 2, out="run", before=before,
                                 save_strategy="steps", lr_scheduler_type="constant",
                                 resume_with_changes=True)
        self.assertNotIn("gradient_checkpointing", run.notes)

    def test_pieces_are_no_more_than_the_sequences_of_a_smaller_micro_batch(self):
        """An incomplete checkpoint is not resumed from, but what it remembers is."""
        keys = {"out": "run", "save_strategy": "steps", "save_steps": 2}
        self.failing(0, **keys)
        state = self.dir / "run" / "checkpoint-4" / "trainer_state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "oom": {
            "changes": [], "remedies": 0, "pieces": 8, "oom_count": 0, "job": "", "jobs": []}}))
        run = self.assert_trains(1, "per_device_train_batch_size: 4", **keys)
        self.assertIn("each micro-batch is divided into 4", run.notes)

    def test_without_a_remedy_left_the_job_ends_with_what_was_tried(self):
        run = self.failing(6)
        self.assertEqual(run.status, 2, run.out + run.err)
        self.assertIn("tried per_device_train_batch_size: 4; per_device_train_batch_size: 2; "
                      "per_device_train_batch_size: 1; gradient_checkpointing: true; "
                      "gradient_checkpointing: offload; use larger GPUs or a smaller model", run.err)

    def test_with_oom_restart_the_settings_stay_and_with_fail_the_job_ends(self):
        run = self.failing(1, oom="restart")
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertIn("8 per device", run.notes)
        run = self.failing(1, oom="fail")
        self.assertEqual(run.status, 2, run.out + run.err)
        self.assertIn("an earlier attempt ran out of memory, and with oom: fail", run.err)
