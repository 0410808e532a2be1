"""Models and datasets by their names: the real `hf` downloads them from a server of ours."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest
from unittest import mock

import hub_server
import trainer
from trainer import make_rows, until

HF = pathlib.Path(sys.executable).parent / "hf"
NAMES = {"model_name_or_path": "org/model", "dataset_name": "org/rows"}
WEIGHTS = "model.safetensors"


def rows_text(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@unittest.skipUnless(HF.exists(), f"{HF} does not exist")
class HubNames(trainer.TrainerTest):
    def setUp(self):
        super().setUp()
        self.home = self.dir / "hf"
        self.server = self.enterContext(hub_server.Hub())
        self.remote = self.server.add("org/model", {
            path.name: path.read_bytes() for path in self.model.iterdir()})
        self.remote_rows = self.server.add("org/rows", {
            "data/train.jsonl": rows_text(self.rows), "data/test.jsonl": rows_text(make_rows(8)),
            "README.md": "# Rows\n"}, kind="dataset")
        shutil.rmtree(self.model)
        self.enterContext(mock.patch.dict(os.environ, {
            "HF_ENDPOINT": self.server.url, "HF_HOME": str(self.home),
            "PATH": f"{HF.parent}:{os.environ['PATH']}", "NO_PROXY": "127.0.0.1"}))
        for name in ("TRANSFORMERS_OFFLINE", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN"):
            os.environ.pop(name, None)

    def recipe(self, **keys):
        return super().recipe(**{**NAMES, "max_steps": 1, **keys})

    def program(self, *words, env=None):
        """Runs mgpu-train; returns status and output."""
        job = self.start(*words, program=str(trainer.BIN / "mgpu-train"), stderr=subprocess.STDOUT,
                         env={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **(env or {})})
        out, _ = job.communicate(timeout=trainer.LIMIT * trainer.SLOWER)
        return job.returncode, out.decode()

    def run_alone(self, env=None, **keys):
        self.runs += 1
        self.out = self.dir / f"run-{self.runs}"
        return self.program(self.recipe(output_dir=str(self.out), **keys), "--single", env=env)

    def refused(self, status, line, env=None, **keys):
        ended, out = self.run_alone(env, **keys)
        self.assertEqual(ended, status, out)
        self.assertEqual(sum(line in text for text in out.splitlines()
                             if text.startswith("mgpu-train: ")), 1, out)
        self.assertFalse((self.out / WEIGHTS).exists())
        self.assertEqual(self.partial_files(), [])
        return out

    def partial_files(self):
        return list(self.home.rglob("*.incomplete"))

    def test_a_model_and_a_dataset_are_downloaded_once_and_then_used_without_the_hub(self):
        run = self.train(2)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)
        self.assertEqual(self.server.contents_sent("train.jsonl"), 1)
        self.assertIn(f"downloading model org/model from {self.server.url} to {self.home}", run.out)
        self.assertEqual(run.out.count("model org/model is complete"), 1)
        self.assertEqual(run.out.count("dataset org/rows is complete"), 1)
        before = len(self.server.requests)
        with mock.patch.dict(os.environ, PATH="/usr/bin:/bin"):
            again = self.train(2)
        self.assertEqual(len(self.server.requests), before)
        self.assertNotIn("downloading", again.out)
        self.assert_same_course(run, again)

    def test_each_node_downloads_into_its_own_cache_and_waits_for_the_others(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        recipe = self.recipe(output_dir=str(self.dir / "out"), global_batch_size=16)
        jobs = []
        for rank in range(2):
            with mock.patch.dict(os.environ, HF_HOME=str(self.dir / f"hf-{rank}")):
                jobs.append(self.start(
                    "--nnodes", 2, "--node-rank", rank, "--nproc", 2, "--master-addr", "127.0.0.1",
                    "--master-port", port, "--insecure", recipe,
                    program=str(trainer.BIN / "mgpu-run"),
                    env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}))
        for job in jobs:
            out, err = job.communicate(timeout=trainer.LIMIT * trainer.SLOWER)
            self.assertEqual(job.returncode, 0, (out + err).decode())
        self.assertEqual(self.server.contents_sent(WEIGHTS), 2)
        self.assertEqual(self.server.contents_sent("train.jsonl"), 2)

    def test_a_model_that_is_not_supported_is_rejected_before_its_weights_are_downloaded(self):
        config = json.loads(self.remote.files["config.json"])
        config["model_type"] = "new_family"
        self.remote.files["config.json"] = json.dumps(config).encode()
        self.refused(1, "model_type")
        self.assertEqual(self.server.contents_sent(WEIGHTS), 0)

    def test_splits_and_revisions_are_those_of_the_recipe(self):
        self.remote_rows.refs.add("v2")
        self.remote.refs.add("v3")
        status, out = self.run_alone(
            dataset_name=[{"path": "org/rows", "split": "test", "revision": "v2"}],
            model_revision="v3", shuffle_dataset=False)
        self.assertEqual(status, 0, out)
        self.assertIn("step 1/1 100%  epoch 1.00", out)  # of 8 rows
        requested = {path for _, path in self.server.requests}
        self.assertIn("/api/models/org/model/revision/v3", requested)
        self.assertIn("/api/datasets/org/rows/revision/v2", requested)
        self.refused(2, "dataset org/rows has no JSONL file of the split dev; it has "
                        "data/test.jsonl, data/train.jsonl",
                     dataset_name=[{"path": "org/rows", "split": "dev"}])

    def test_names_that_the_hub_refuses_are_explained(self):
        self.remote.gated = True
        page = f"{self.server.url}/org/model"
        self.refused(2, f"cannot download model org/model: its owner decides who may use it: "
                        f"request access at {page}, then run hf auth login, or set HF_TOKEN")
        self.remote.accepted = "hf_mine"
        status, out = self.run_alone({"HF_TOKEN": "hf_mine"})
        self.assertEqual(status, 0, out)
        self.refused(2, "cannot download model org/modle: there is no such path here, and "
                        f"{self.server.url} has no model of this name that you may read",
                     model_name_or_path="org/modle")
        self.refused(2, "cannot download model org/model: it has no revision v9", model_revision="v9")

    def test_requests_that_fail_for_a_while_are_repeated(self):
        self.remote.statuses = [429]
        self.remote.truncated = {WEIGHTS: 1}
        self.remote.cut = {"tokenizer.json": 1}
        status, out = self.run_alone()
        self.assertEqual(status, 0, out)
        self.assertIn("limits the number of requests (429); wait a few minutes", out)
        self.assertIn("has sent only a part of a file", out)
        self.assertEqual(out.count("trying again in 1 s"), 2, out)
        self.assertEqual(self.partial_files(), [])

    def test_offline_uses_only_the_cache(self):
        line = "org/model is neither a local path nor in the cache"
        out = self.refused(2, line, offline=True)
        self.assertIn("offline is set, so nothing is downloaded", out)
        self.refused(2, line, env={"HF_HUB_OFFLINE": "1"})
        self.assertEqual(self.server.requests, [])

    def test_without_hf_the_message_has_the_command_that_installs_it(self):
        self.refused(2, "to download it, install hf: pip install huggingface_hub",
                     env={"PATH": "/usr/bin:/bin"})

    def test_a_full_disk_leaves_no_partial_files(self):
        script = ("mount -t tmpfs -o size=100k tmpfs \"$HF_HOME\" || exit 77; \"$@\"; status=$?; "
                  "find \"$HF_HOME\" -name '*.incomplete'; exit $status")
        self.home.mkdir()
        job = self.start("--mount", "sh", "-c", script, "sh", trainer.BIN / "mgpu-train",
                         self.recipe(), "--single", program=shutil.which("unshare"),
                         env={"CUDA_VISIBLE_DEVICES": ""}, stderr=subprocess.STDOUT)
        out = job.communicate(timeout=trainer.LIMIT)[0].decode()
        if job.returncode in (1, 77) and "mgpu-train" not in out:
            self.skipTest("needs permission to mount")
        self.assertEqual(job.returncode, 2, out)
        self.assertIn("cannot download model org/model: No space left on device", out)
        self.assertNotIn("incomplete\n", out)

    def test_a_stopped_download_leaves_no_processes_and_no_partial_files(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        job = self.start(self.recipe(), "--single", program=str(trainer.BIN / "mgpu-train"),
                         env={"CUDA_VISIBLE_DEVICES": ""})
        until(self.partial_files, what="the download")
        downloads = trainer.children(job.pid)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(10), -signal.SIGTERM)
        self.assert_all_gone(downloads)
        self.assertEqual(self.partial_files(), [])
        gate.set()
        status, out = self.run_alone()
        self.assertEqual(status, 0, out)

    def test_jobs_that_share_a_cache_download_once(self):
        gate = self.remote.gates[WEIGHTS] = threading.Event()
        jobs = [self.start_training(out=f"job-{number}", recipe=self.recipe(
            output_dir=str(self.dir / f"job-{number}"))) for number in range(2)]
        until(lambda: self.server.contents_sent(WEIGHTS), what="the download")
        gate.set()
        for run in map(self.end, jobs):
            self.assertEqual(run.status, 0, run.out + run.err)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)

    def test_check_and_plan_download_only_the_configuration_and_the_tokenizer(self):
        recipe = self.recipe(max_length=128)
        status, out = self.program("check", recipe)
        self.assertEqual(status, 0, out)
        self.assertIn("not checked: dataset org/rows is not in the cache: the run downloads it", out)
        self.assertNotIn("not checked: model", out)
        status, out = self.program("plan", recipe, "--gpu-memory", "80GB")
        self.assertEqual(status, 0, out)
        self.assertEqual(self.server.contents_sent("config.json"), 1)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 0)
        self.assertEqual(self.server.contents_sent("train.jsonl"), 0)
        status, out = self.program("check", self.recipe(use_peft=True, lora_target_modules=["nope"]))
        self.assertNotEqual(status, 0, out)
        self.assertIn("lora_target_modules: nope is not supported", out)

    def test_check_passes_with_a_note_where_the_hub_cannot_be_reached_and_the_run_refuses(self):
        unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        recipe = self.recipe()
        status, out = self.program("check", recipe, env=unreachable)
        self.assertEqual(status, 0, out)
        self.assertIn("not checked: cannot download model org/model: http://127.0.0.1:9 cannot be "
                      "reached", out)
        status, out = self.program("check", recipe, env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(status, 0, out)
        self.assertIn("not checked: org/model is neither a local path nor in the cache", out)
        status, out = self.program("plan", recipe, "--gpu-memory", "80GB", env=unreachable)
        self.assertEqual(status, 1, out)
        self.assertIn("mgpu-train: cannot download model org/model: ", out)
        status, out = self.program("check", self.recipe(learning_rate=-1), env=unreachable)
        self.assertEqual(status, 2, out)
        self.refused(2, "offline is set", offline=True)

    def test_a_folder_without_a_configuration_was_read_by_check(self):
        """A download that ends at its limit of time has left other files of the snapshot."""
        del self.remote.files["config.json"]
        status, out = self.program("check", self.recipe())
        self.assertEqual(status, 0, out)
        self.assertIn("not checked: cannot download model org/model: it has no config.json", out)
        status, out = self.program("plan", self.recipe(), "--gpu-memory", "80GB")
        self.assertEqual(status, 1, out)
        self.assertIn("mgpu-train: cannot download model org/model: it has no config.json", out)

    def test_a_mistyped_path_is_not_looked_for_on_the_hub(self):
        (self.dir / "data").mkdir()
        self.refused(2, "cannot open data/rows: no such file", dataset_name="data/rows")
        self.refused(1, "data/model is neither a local folder nor in the cache",
                     model_name_or_path="data/model", dataset_name=str(self.data))
        self.assertEqual(self.server.requests, [])

    def test_adapters_and_tokenizers_are_downloaded_too(self):
        split = {True: {}, False: {}}
        for name, contents in self.remote.files.items():
            split[name.startswith("tokenizer")][name] = contents
        self.server.add("org/tokenizer", split[True])
        self.server.add("org/bare", split[False])
        bare = {"model_name_or_path": "org/bare", "tokenizer_path": "org/tokenizer"}
        first = self.train(1, lora_r=4, **bare)
        config = json.loads((first.folder / "adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], "org/bare")
        self.server.add("org/adapter", {
            name: (first.folder / name).read_bytes()
            for name in ("adapter_config.json", "adapter_model.safetensors")})
        run = self.train(1, adapter_path="org/adapter", **bare)
        self.assertIn("adapter org/adapter is complete", run.out)
        self.assertIn("continuing from adapter", run.notes)
        status, out = self.program("generate", "--model", "org/model", "--adapter", "org/adapter",
                                   "--prompt", "1", "--max-new-tokens", "2", "--raw")
        self.assertEqual(status, 0, out)
        self.assertIn("model org/model is complete", out)

    def test_a_reward_of_the_form_of_a_name_is_a_model(self):
        self.server.add("org/scorer", self.remote.files)
        recipe = self.recipe(task="grpo", reward_funcs=["format", "org/scorer"], num_generations=2)
        status, out = self.program("check", recipe)
        self.assertEqual(status, 0, out)
        self.assertIn(("GET", "/api/models/org/scorer/revision/main"), self.server.requests)
        self.assertNotIn("not checked: cannot", out)

    def test_modelscope_is_asked_with_its_own_program(self):
        folder = self.dir / "ms/models/org--model/snapshots/master"
        tool = pathlib.Path(self.write("bin-modelscope", f"""#!/bin/sh
            echo "$@" > '{self.dir}/arguments'
            mkdir -p '{folder}' && cp '{self.dir}'/kept/* '{folder}'
            """, 0o755))
        kept = self.dir / "kept"
        kept.mkdir()
        for name, contents in self.remote.files.items():
            (kept / name).write_bytes(contents)
        (self.dir / "tools").mkdir()
        tool.rename(self.dir / "tools/modelscope")
        status, out = self.run_alone(
            {"USE_MODELSCOPE_HUB": "1", "MODELSCOPE_CACHE": str(self.dir / "ms"),
             "PATH": f"{self.dir}/tools:/usr/bin:/bin"}, dataset_name=str(self.data))
        self.assertEqual(status, 0, out)
        self.assertIn("download --model org/model --include config.json",
                      (self.dir / "arguments").read_text())
        (folder / "tokenizer.json").rename(self.dir / "tokenizer.json")
        status, out = self.run_alone(
            {"MODELSCOPE_CACHE": str(self.dir / "ms"), "PATH": "/usr/bin:/bin"}, hub="modelscope",
            dataset_name=str(self.data), tokenizer_path=str(self.dir))
        self.assertEqual(status, 0, out)
        self.refused(2, "install modelscope: pip install modelscope", hub="modelscope",
                     env={"MODELSCOPE_CACHE": str(self.dir / "other"), "PATH": "/usr/bin:/bin"},
                     dataset_name=str(self.data))
        self.assertEqual(self.server.requests, [])


if __name__ == "__main__":
    unittest.main()
