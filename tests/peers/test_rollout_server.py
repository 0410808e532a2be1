"""GRPO with a server that generates: vllm_server.py, which is ours and speaks vLLM's protocol."""

import json
import socket
import subprocess
import threading
import time
import unittest

import trainer
from grpo_trainer import GrpoTest, prompt_rows
from trainer import BIN, LIMIT, write_rows

try:
    import peft
    import transformers
    import vllm_server
except ImportError:  # trainer.MISSING says which
    vllm_server = None

ATOL = 2e-5  # of weights after three steps of 1e-3, in fp32
SAME = 1e-4  # of log-probs of two programs, in fp32
COMPLETIONS = "/v1/completions"


class ServerTest(GrpoTest):
    KEYS = dict(GrpoTest.KEYS, use_vllm=True, vllm_mode="server", use_peft=True, lora_r=4,
                lora_dropout=0.0, learning_rate=1e-3, vllm_server_timeout=10)

    def serve(self, **options):
        server = vllm_server.Server(self.model, **options)
        self.enterContext(server)
        return server

    def train_by(self, server, nproc=1, **keys):
        return self.train(nproc, **{"vllm_server_base_url": server.url, **keys})

    def refused_by(self, server, *lines, nproc=1, status=1, **keys):
        return self.refused(status, *lines, nproc=nproc,
                            **{"vllm_server_base_url": server.url, **keys})

    def assert_nothing_left(self, server, run):
        self.assertEqual(server.model.adapters, {})
        self.assertFalse((run.folder / "server_adapters").exists())


class Rollouts(ServerTest):
    def test_the_server_has_the_weights_of_every_step(self):
        server = self.serve()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        server.probe = tokenizer("7+9=")["input_ids"]
        run = self.train_by(server, nproc=2, save_strategy="steps", save_steps=1,
                            learning_rate=1e-2)
        for record in run.records():
            self.assertLess(record["sampling/sampling_logp_difference/max"], SAME)
            self.assertAlmostEqual(record["sampling/importance_sampling_ratio/mean"], 1, 3)
        self.assertIn(f"completions come from {self.model} by the server at {server.url}",
                      run.notes)
        self.assert_nothing_left(server, run)

        names = [name for name, _ in server.loaded]
        self.assertEqual(len(set(names)), 3)
        self.assertEqual([body["model"] for body in server.bodies(COMPLETIONS)],
                         [name for name in names for _ in range(3)])
        answers = [tokens for _, tokens in server.loaded]
        self.assertNotEqual(answers[0], answers[2])
        for step in (1, 2):
            made = subprocess.run(
                [BIN / "mgpu-train", "generate", "--model", self.model, "--adapter",
                 run.folder / f"checkpoint-{step}", "--prompt", "7+9=", "--raw", "--details",
                 "--temperature", "0", "--max-new-tokens", "16"],
                capture_output=True, text=True, timeout=LIMIT, check=True,
                env=trainer.environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"))
            self.assertEqual(json.loads(made.stdout)["completion_ids"], answers[step])

    def test_any_number_of_ranks_asks_for_the_same(self):
        runs, asked = [], []
        for nproc, stage in ((1, 0), (2, 3)):
            server = self.serve()
            runs.append(self.train_by(server, nproc, zero_stage=stage, max_steps=2))
            asked.append(sorted((tuple(body["prompt"][0]), body["seed"])
                                for body in server.bodies(COMPLETIONS)))
        self.assertEqual(asked[0], asked[1])
        self.assertEqual(len({seed for _, seed in asked[0]}), 6)
        self.assert_same_weights(*(run.weights("adapter_model") for run in runs), ATOL)

    def test_a_step_is_that_of_our_own_engine_with_the_same_completions(self):
        """Four steps on one generation, which a checkpoint holds."""
        keys = dict(global_batch_size=8, steps_per_generation=8, max_steps=4,
                    save_strategy="steps", save_steps=1)
        ours = self.train(1, use_vllm=False, **keys)
        state = json.loads((ours.folder / "checkpoint-1" / "trainer_state.json").read_text())
        (generation,) = state["task_state"]["generations"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        rows = prompt_rows(24)
        made = {}
        for sample in generation["samples"]:
            prompt = tokenizer(rows[sample["question"]]["prompt"])["input_ids"]
            made.setdefault(tuple(prompt), []).append(sample["tokens"])
        theirs = self.train_by(self.serve(replay=made), **keys)
        self.assertEqual(theirs.records()[0]["reward"], ours.records()[0]["reward"])
        self.assert_near(theirs.column("grad_norm"), ours.column("grad_norm"), 1e-3)
        self.assert_same_weights(theirs.weights("adapter_model"), ours.weights("adapter_model"),
                                 ATOL)

    def test_a_resumed_run_ends_with_the_same_weights(self):
        whole = self.train_by(self.serve())
        server = self.serve()
        keys = dict(out="again", save_strategy="steps", save_steps=1)
        first = self.train_by(server, max_steps=2, **keys)
        left = first.folder / "server_adapters" / "of-a-run-that-was-killed"
        peft.PeftModel.from_pretrained(vllm_server.Model(self.model, "").base,
                                       first.folder / "checkpoint-1").save_pretrained(left)
        server.model.load("left", str(left))
        second = self.train_by(server, nproc=2, **keys)
        self.assertIn("checkpoint-2 at step 2", second.notes)
        self.assert_same_weights(second.weights("adapter_model"), whole.weights("adapter_model"),
                                 ATOL)
        self.assert_nothing_left(server, second)

    def test_all_that_shapes_a_draw_reaches_the_server(self):
        server = self.serve()
        held_out = write_rows(self.dir / "held_out.jsonl", prompt_rows(2))
        run = self.train_by(
            server, max_steps=1, temperature=0.8, top_p=0.9, top_k=40, min_p=0.01,
            repetition_penalty=1.1, max_completion_length=24, eval_dataset=str(held_out),
            eval_strategy="steps", eval_steps=1, log_completions=True,
            generation_kwargs={"stop": ["a", "e"], "frequency_penalty": 0.5},
            vllm_structured_outputs_regex="[a-z]*")
        asked = server.bodies(COMPLETIONS)
        self.assertEqual(len(asked), 5)  # the last two are the evaluation's
        self.assertEqual(len({body["model"] for body in asked}), 2)
        wanted = dict(n=8, max_tokens=24, temperature=0.8, top_p=0.9, top_k=40, min_p=0.01,
                      repetition_penalty=1.1, stop=["a", "e"], frequency_penalty=0.5,
                      logprobs=0, return_token_ids=True,
                      structured_outputs={"regex": "[a-z]*"})
        for body in asked:
            self.assertEqual({key: body[key] for key in wanted}, wanted)
        (lines,) = self.completions(run).values()
        stopped = [line for line in lines if line["terminated"]]
        self.assertTrue(stopped)
        for line in stopped:
            self.assertRegex(line["completion"], "[ae]")
        self.assertEqual(len(run.column("eval_reward", "eval")), 1)

    def test_a_server_that_comes_late_is_waited_for(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        late = threading.Timer(2, lambda: self.serve(port=port))
        late.start()
        self.addCleanup(late.join)
        run = self.train(1, max_steps=1, vllm_server_host="0.0.0.0", vllm_server_port=port)
        self.assertEqual(run.err.count(f"waiting for the server at http://127.0.0.1:{port}"), 1)


class Correction(ServerTest):
    """A server that says of every token that it was less likely, by a factor of exp(0.5)."""

    def norm(self, **keys):
        run = self.train_by(self.serve(fault="shifted_log_probs"), max_steps=1, lora_r=4, **keys)
        (record,) = run.records()
        self.assertAlmostEqual(record["sampling/sampling_logp_difference/mean"], 0.5, 3)
        return record["grad_norm"], record["sampling/importance_sampling_ratio/max"]

    def test_acts_as_its_keys_say(self):
        plain, _ = self.norm(vllm_importance_sampling_correction=False)
        self.assertGreater(plain, 0)
        self.assertEqual(self.norm(), (0, 0))  # exp(4) is above 3: no sequence is left
        norm, ratio = self.norm(vllm_importance_sampling_mode="token_truncate",
                                vllm_importance_sampling_clip_max=1.2)
        self.assertAlmostEqual(ratio, 1.2, 5)
        self.assertAlmostEqual(norm / plain, 1.2, 3)


class BadServers(ServerTest):
    def test_one_that_is_never_up(self):
        self.refused(1, "no server answered at http://127.0.0.1:1 within 1 s",
                     "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve", "--max-lora-rank 8",
                     vllm_server_base_url="http://127.0.0.1:1", vllm_server_timeout=1)
        self.refused_by(self.serve(fault="never_healthy"), "within 1 s", "status 503",
                        vllm_server_timeout=1)

    def test_one_that_is_never_up_is_named_before_the_other_ranks_lose_patience(self):
        self.refused(1, "no server answered at http://127.0.0.1:1 within 8 s",
                     vllm_server_base_url="http://127.0.0.1:1", ddp_timeout=10, nproc=2)

    def test_one_that_fails_in_passing_is_asked_again(self):
        server = self.serve(fault="once_500")
        self.train_by(server, max_steps=1)
        self.assertEqual(len(server.bodies(COMPLETIONS)), 4)

    def test_one_that_dies_in_the_middle_of_a_request(self):
        self.refused_by(self.serve(fault="dies"), f"{COMPLETIONS}: cannot ", "tried 6 times",
                        nproc=2)

    def test_ones_that_cannot_be_believed(self):
        for fault, line in (("wrong_count", "8 completions were asked for, and 7 came"),
                            ("no_log_probs", "completion 7: it has no logprobs")):
            with self.subTest(fault):
                server = self.serve(fault=fault)
                self.refused_by(server, f"{server.url}{COMPLETIONS} cannot be believed", line)

    def test_ones_that_refuse_say_why(self):
        start = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve"
        for fault, *lines in (
                ("refuses", f"{COMPLETIONS} answered with status 400: this model does not like"),
                ("no_adapters", "does not take the adapter in ", "status 404: Not Found", start),
                ("full_adapters", "status 400: LoRA rank 64 is greater than max_lora_rank", start),
                ("older_trl", "is the server of an older TRL", start)):
            with self.subTest(fault):
                self.refused_by(self.serve(fault=fault), *lines)

    def test_one_that_reads_less_than_prompts_and_completions_have(self):
        self.refused_by(self.serve(max_model_len=12), "reads 12 tokens (max_model_len)",
                        "start it with --max-model-len 13")

    def test_one_whose_log_probs_are_not_those_of_the_draw(self):
        server = self.serve(dev=True, log_probs_mode="raw_logprobs")
        run = self.train_by(server, max_steps=1)
        self.assertIn("warning: the server's logprobs mode is raw_logprobs", run.notes)

    def test_copies_of_a_model_cannot_have_an_adapter(self):
        server = self.serve(dev=True, info={"parallel_config": {"data_parallel_size": 2}})
        self.refused_by(server, "runs 2 copies of the model", "--data-parallel-size")


class BadRecipes(ServerTest):
    def test_what_no_server_can_do_is_refused_before_one_is_waited_for(self):
        begin = time.monotonic()
        self.refused(1, "all weights reach a server over NCCL, which needs GPUs", nproc=1,
                     use_peft=False, vllm_server_base_url="http://127.0.0.1:1")
        self.refused(1, "no adapters with lora_modules_to_save", nproc=1,
                     lora_modules_to_save=["lm_head"], vllm_server_base_url="http://127.0.0.1:1")
        self.refused(1, "vllm_server_base_url: https is not spoken", nproc=1,
                     vllm_server_base_url="https://127.0.0.1:1")
        self.refused(1, "generation_kwargs: seed is set for the server by other keys", nproc=1,
                     generation_kwargs={"seed": 1}, vllm_server_base_url="http://127.0.0.1:1")
        self.assertLess(time.monotonic() - begin, 4 * 8 * trainer.SLOWER)


if __name__ == "__main__":
    unittest.main()
