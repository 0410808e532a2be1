"""Command lines of the documents in docs/requirements.md, as they are written there, with a small
script in the place of theirs."""

import json
import os
import pathlib
import unittest

from harness import MGPU_RUN, JobTest

DUMP = ('import json, os, sys\nwith open("dump." + os.environ["RANK"], "w") as file:\n'
        '    json.dump([dict(os.environ), sys.argv[1:]], file)\n')

ZERO2 = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: bf16
deepspeed_config:
  zero_stage: 2
  contiguous_gradients: true
  overlap_comm: true
  reduce_scatter: true
  reduce_bucket_size: 5e8
  allgather_bucket_size: 5e8
  offload_optimizer_device: none
  offload_param_device: none
"""


class Commands(JobTest):
    def ranks(self, count, script, *args, program=MGPU_RUN, **env):
        """The environments and arguments of the ranks of a command."""
        (self.dir / script).write_text(DUMP)
        for file in self.dir.glob("dump.*"):
            file.unlink()
        job = self.start(*args, program=program, env=env)
        out, err = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, (out + err).decode())
        self.assertEqual(len(list(self.dir.glob("dump.*"))), count)
        self.error_text = err.decode()
        return [json.loads((self.dir / f"dump.{rank}").read_text()) for rank in range(count)]

    def named(self, name):
        """mgpu-run under another name, as a link."""
        link = self.dir / name
        os.symlink(pathlib.Path(MGPU_RUN).resolve(), link)
        return str(link)

    def assert_world(self, ranks):
        for rank, (env, _) in enumerate(ranks):
            self.assertEqual((env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]),
                             (str(rank), str(rank), str(len(ranks))))

    def test_minionerecs_sft_sh_runs_8_ranks_with_its_variables(self):
        arguments = ["--base_model", "your_model_path", "--batch_size", "1024",
                     "--micro_batch_size", "16", "--seed", "42", "--freeze_LLM", "False"]
        ranks = self.ranks(8, "sft.py", "--nproc_per_node", "8", "sft.py", *arguments,
                           program=self.named("torchrun"), NCCL_IB_DISABLE="1")
        self.assert_world(ranks)
        for env, args in ranks:
            self.assertEqual(env["NCCL_IB_DISABLE"], "1")
            self.assertEqual(args, arguments)

    def test_minionerecs_rl_sh_runs_8_ranks_with_its_port_and_file(self):
        (self.dir / "config").mkdir()
        (self.dir / "config" / "zero2_opt.yaml").write_text(ZERO2)
        arguments = ["--model_path", "path_to_model", "--train_batch_size", "64", "--beta", "1e-3"]
        ranks = self.ranks(8, "rl.py", "--config_file", "./config/zero2_opt.yaml",
                           "--num_processes", "8", "--main_process_port", "29503", "rl.py",
                           *arguments, HF_ENDPOINT="https://hf-mirror.com", NCCL_IB_DISABLE="1")
        self.assert_world(ranks)
        for env, args in ranks:
            self.assertEqual(env["MASTER_PORT"], "29503")
            self.assertEqual(env["HF_ENDPOINT"], "https://hf-mirror.com")
            self.assertEqual(env["NCCL_IB_DISABLE"], "1")
            self.assertEqual(args, arguments)
        self.assertIn("must be set up by the training script", self.error_text)

    def test_the_qwen3_guides_commands_run_2_4_and_8_ranks(self):
        launch = self.named("torch-distributed-launch")
        arguments = ["--batch_size", "4", "--max_length", "256", "--num_epochs", "10",
                     "--model_size", "medium", "--lr", "0.0005", "--save_dir", "./my_checkpoints"]
        for count, more in ((2, []), (4, arguments), (8, [])):
            with self.subTest(count):
                ranks = self.ranks(count, "run_distributed_training.py",
                                   f"--nproc_per_node={count}", "run_distributed_training.py",
                                   *more, program=launch)
                self.assert_world(ranks)
                for rank, (env, args) in enumerate(ranks):
                    self.assertEqual(args, [f"--local-rank={rank}", *more])
                    self.assertEqual(env["MASTER_ADDR"], "127.0.0.1")

    def test_variables_for_nccl_reach_every_rank(self):
        for env, _ in self.ranks(2, "script.py", "--nproc", "2", "script.py", NCCL_DEBUG="INFO",
                                 NCCL_IB_DISABLE="1"):
            self.assertEqual((env["NCCL_DEBUG"], env["NCCL_IB_DISABLE"]), ("INFO", "1"))

    def test_unsloth_multigpus_command_selects_two_gpus(self):
        ranks = self.ranks(2, "quick_start.py", "--nproc_per_node=2", "quick_start.py",
                           program=self.named("torchrun"), CUDA_VISIBLE_DEVICES="0,1")
        self.assert_world(ranks)
        for env, _ in ranks:
            self.assertEqual(env["CUDA_VISIBLE_DEVICES"], "0,1")


if __name__ == "__main__":
    unittest.main()
