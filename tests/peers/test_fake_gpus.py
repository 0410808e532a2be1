"""The whole GPU path of the trainer runs on a fake CUDA (tests/support/fake_cuda.cpp), which writes
down on which GPU each call works."""

import collections
import json
import subprocess
import sys
import unittest

import trainer

FAKE = trainer.BIN.parent / "lib" / "libfake_cuda.so"


@unittest.skipUnless(FAKE.exists(), "built without CUDA's headers")
class FakeGpus(trainer.TrainerTest):
    KEYS = dict(max_steps=2, save_strategy="no", save_final_model=False, backend="nccl")

    def train_on_fakes(self, nproc, variables=(), **keys):
        settings = (f"LD_PRELOAD={FAKE}", f"FAKE_CUDA_GPUS={nproc}", "CUDA_VISIBLE_DEVICES=",
                    *variables)
        # mgpu-run itself finds no GPUs.
        options = ["--oversubscribe", *(word for setting in settings for word in ("--env", setting))]
        return self.end(self.start_training(nproc, options=options, **{**self.KEYS, **keys}))

    def calls(self, nproc, variables=(), **keys):
        """Trains on fake GPUs; returns for each rank how often a GPU was used by which call."""
        stem = self.dir / f"calls-{self.runs}"
        run = self.train_on_fakes(nproc, [f"FAKE_CUDA_LOG={stem}", *variables], **keys)
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(len(run.column("loss")), 2)
        ranks = []
        for rank in range(nproc):
            lines = (self.dir / f"{stem.name}.{rank}").read_text().splitlines()
            # Programs of CUDA 12 launch kernels with cudaLaunchKernel, those of 13 with __cudaLaunchKernel.
            ranks.append(collections.Counter(tuple(word.lstrip("_") for word in line.split()[1:3])
                                             for line in lines))
        return ranks

    def assert_own_gpu(self, ranks):
        for rank, calls in enumerate(ranks):
            others = {key: count for key, count in calls.items() if key[0] != str(rank)}
            self.assertEqual(others, {}, f"rank {rank}")
            # It did train there.
            for call, least in (("cudaLaunchKernel", 100), ("cublasSgemm_v2", 20),
                                ("cudaMalloc", 1), ("ncclCommInitRankConfig", 1)):
                self.assertGreaterEqual(calls[str(rank), call], least, (rank, call))

    def test_every_rank_works_on_its_own_gpu_at_every_zero_stage(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                ranks = self.calls(2, zero_stage=stage)
                self.assert_own_gpu(ranks)
                self.assertGreater(ranks[1]["1", "ncclAllGather" if stage else "ncclAllReduce"], 0)

    def test_evaluation_and_adapters_stay_on_the_own_gpu(self):
        self.assert_own_gpu(self.calls(3, use_peft=True, eval_strategy="steps", eval_steps=1,
                                       val_set_size=8, global_batch_size=6,
                                       per_device_train_batch_size=2))

    def test_checkpoints_in_the_background_have_the_bytes_of_those_that_are_written_at_once(self):
        """On one GPU: fake ranks receive only what they send."""
        for keys in ({}, dict(use_peft=True), dict(optim="adamw_8bit")):
            with self.subTest(**keys):
                files = []
                for choice in (False, True):
                    stem = self.dir / f"saves-{self.runs}"
                    run = self.train_on_fakes(1, [f"FAKE_CUDA_LOG={stem}"], async_save=choice,
                                              save_strategy="steps", save_steps=1, **keys)
                    self.assertEqual(run.status, 0, run.out + run.err)
                    self.assertEqual(run.column("in_background", "checkpoint"), [choice] * 2)
                    pinned = (self.dir / f"{stem.name}.0").read_text().count("cudaHostRegister")
                    self.assertEqual(pinned, choice)
                    manifest = json.loads((run.folder / "checkpoint-2/manifest.json").read_text())
                    files.append({name: file for name, file in manifest["files"].items()
                                  if name != "trainer_state.json"})
                self.assertEqual(*files)

    def test_offloading_measured_shares_and_comparisons_stay_on_the_own_gpu(self):
        for keys in (dict(gradient_checkpointing="offload"), dict(batch_sharding="adaptive"),
                     dict(consistency_check_steps=1)):
            with self.subTest(**keys):
                self.assert_own_gpu(self.calls(2, **keys))

    def test_a_trace_without_kernels_has_ranges_and_a_note(self):
        """LibTorch's profiler finds no CUPTI that works with the fake. It stays on the own GPU."""
        self.assert_own_gpu(self.calls(2, trace_steps=[2]))
        folder = self.dir / f"run-{self.runs}"
        notes = [json.loads(line).get("text", "") for line in
                 (folder / "metrics.jsonl").read_text().splitlines()]
        self.assertTrue(any("trace_steps: the trace has no GPU activity" in note for note in notes),
                        notes)
        events = json.loads((folder / "traces" / "rank1.json").read_text())["traceEvents"]
        self.assertEqual([event["args"]["step"] for event in events if event["name"] == "step"], [2])

    def test_a_thread_that_selects_no_gpu_is_noticed(self):
        """As on a real machine, every thread begins on GPU 0."""
        program = ("import ctypes, sys, threading\ncuda = ctypes.CDLL(sys.argv[1])\n"
                   "cuda.cudaSetDevice(1)\ncuda.cudaDeviceSynchronize()\n"
                   "thread = threading.Thread(target=cuda.cudaDeviceSynchronize)\n"
                   "thread.start()\nthread.join()\n")
        subprocess.run([sys.executable, "-c", program, FAKE], check=True, timeout=trainer.LIMIT,
                       env=trainer.environment(FAKE_CUDA_GPUS="2", RANK="1",
                                               FAKE_CUDA_LOG=str(self.dir / "calls")))
        lines = (self.dir / "calls.1").read_text().splitlines()
        self.assertEqual([line.split()[1:3] for line in lines],
                         [["1", "cudaSetDevice"], ["1", "cudaDeviceSynchronize"],
                          ["0", "cudaDeviceSynchronize"]])

    def test_an_error_of_nccl_names_the_variables_to_set(self):
        run = self.train_on_fakes(2, ["FAKE_NCCL_FAILS=1"])
        self.assertEqual(run.status, 1, run.err)
        (line, *_) = [each for each in run.err.splitlines() if each.startswith("mgpu-train: ")]
        self.assertRegex(line, "rank [01] cannot join the 1 other ranks through 127.0.0.1:")
        self.assertIn("set NCCL_DEBUG=INFO to see what NCCL does", line)
        self.assertIn("try NCCL_IB_DISABLE=1 or NCCL_SOCKET_IFNAME=<interface>", line)

    def refusal(self, *words, **variables):
        done = subprocess.run([trainer.BIN / "mgpu-train", self.recipe(), *words], capture_output=True,
                              text=True, timeout=trainer.LIMIT,
                              env=trainer.environment(LD_PRELOAD=str(FAKE), FAKE_CUDA_GPUS="1",
                                                      **variables))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_a_gpu_for_which_there_is_no_code_is_refused_by_name(self):
        self.assertIn("mgpu-train: GPU 0 (Fake GPU 0, compute capability 6.1) is not supported: torch "
                      "for CUDA ", self.refusal(FAKE_CUDA_CAPABILITY="61"))

    def test_a_gpu_without_bf16_trains_in_fp16_if_there_are_kernels_for_it(self):
        compiled = (trainer.BIN.parent / "architectures.txt").read_text().split()
        if compiled and not any(name.startswith("75") for name in compiled):
            self.assertIn("compute capability 7.5) is not supported: this mgpu-train has kernels for ",
                          self.refusal(FAKE_CUDA_CAPABILITY="75"))
            return
        run = self.train_on_fakes(1, ["FAKE_CUDA_CAPABILITY=75"], dtype="auto")
        self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(len(run.column("loss_scale")), 2)

    def test_a_driver_that_is_too_old_is_refused_with_the_version_that_is_needed(self):
        message = self.refusal(FAKE_CUDA_DRIVER="11080")
        self.assertIn("mgpu-train: the NVIDIA driver supports CUDA 11.8 and this mgpu-train needs CUDA ",
                      message)
        self.assertIn("set CUDA_VISIBLE_DEVICES= to compute on CPUs", message)

    def test_bf16_is_refused_on_a_gpu_without_it(self):
        message = self.refusal("--set", "bf16=true", FAKE_CUDA_CAPABILITY="75")
        self.assertRegex(message, "dtype: bf16 needs compute capability 8.0, and GPU 0 .* has 7.5; set "
                         "dtype: auto or fp16|compute capability 7.5.* has kernels for")

    def test_a_worker_without_the_launcher_prints_the_command_that_uses_all_gpus(self):
        recipe = self.recipe()
        done = subprocess.run([trainer.BIN / "mgpu-train", recipe], capture_output=True, text=True,
                              timeout=trainer.LIMIT,
                              env=trainer.environment(LD_PRELOAD=str(FAKE), FAKE_CUDA_GPUS="4"))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "mgpu-train: 4 GPUs are visible, but one process uses only "
                         f"one of them; run mgpu-run --nproc 4 {recipe} to use all, or add "
                         "--single to use one\n")


if __name__ == "__main__":
    unittest.main()
