"""Models and datasets by their names: the real `hf` downloads them from a server of ours."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import unittest
from unittest import mock

import hub
import trainer
from hub import WEIGHTS


class HubNames(hub.HubTest):
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

    def test_a_model_that_is_not_supported_is_rejected_before_its_weights_are_downloaded(self):
        config = json.loads(self.remote.files["config.json"])
        config["model_type"] = "new_family"
        self.remote.files["config.json"] = json.dumps(config).encode()
        self.refused(2, "model_type")
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
        self.refused(2, "dataset org/rows has no split dev; it has train, test",
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

    def test_a_private_model_is_for_those_whose_token_may_read_it(self):
        self.server.tokens = {"hf_mine", "hf_of_somebody"}
        self.remote.token = "hf_mine"
        unknown = f"{self.server.url} has no model of this name that you may read; check the name, or " \
                  "for a private one run hf auth login, or set HF_TOKEN"
        self.refused(2, unknown)
        self.refused(2, unknown, env={"HF_TOKEN": "hf_of_somebody"})
        self.refused(2, f"cannot download model org/model: {self.server.url} does not accept the token; "
                        "run hf auth login, or set HF_TOKEN", env={"HF_TOKEN": "hf_expired"})
        self.home.mkdir(exist_ok=True)
        (self.home / "token").write_text("hf_mine")  # as hf auth login writes it
        status, out = self.run_alone()
        self.assertEqual(status, 0, out)

    def test_check_passes_with_a_note_whatever_the_hub_answers(self):
        for status, reason in ((429, "limits the number of requests (429); wait a few minutes"),
                               (503, "has a fault"), (404, "has no model of this name")):
            with self.subTest(status=status):
                self.remote.statuses = [status] * 100
                ended, out = self.program("check", self.recipe())
                self.assertEqual(ended, 0, out)
                self.assertRegex(out, "not checked: cannot download model org/model: .*" + re.escape(reason))
                self.assertEqual(out.count("cannot download model"), 1, out)
                self.assertEqual(self.partial_files(), [])
        self.remote.statuses, self.remote.truncated = [], {"config.json": 100}
        ended, out = self.program("check", self.recipe())
        self.assertEqual(ended, 0, out)
        self.assertIn(f"not checked: cannot download model org/model: {self.server.url} has sent only a "
                      "part of a file", out)
        self.assertEqual(self.partial_files(), [])

    def test_check_and_plan_wait_for_the_hub_for_ten_seconds(self):
        self.remote.gates["config.json"] = threading.Event()
        recipe = self.recipe()
        begin = time.monotonic()
        jobs = [self.start(*words, program=str(trainer.BIN / "mgpu-train"), stderr=subprocess.STDOUT)
                for words in (["check", recipe], ["plan", recipe, "--gpu-memory", "80GB"])]
        (check, _), (plan, _) = (job.communicate(timeout=trainer.LIMIT) for job in jobs)
        self.assertLess(time.monotonic() - begin, 13 * trainer.SLOWER)
        self.assertEqual([job.returncode for job in jobs], [0, 1], (check, plan))
        for out, prefix in (check, "not checked: "), (plan, "mgpu-train: "):
            self.assertRegex(out.decode(), f"{prefix}cannot download model org/model: (it took longer than "
                                           "10 s|process .* is downloading it)")
        self.assertEqual(self.partial_files(), [])

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
        self.refused(2, "cannot open data/rows: No such file or directory",
                     dataset_name="data/rows")
        self.refused(2, "model_name_or_path: there is no folder data/model, and it is not a name of the "
                     "Hub, because data exists here",
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
            for name in ("adapter_config.json", "adapter_model.safetensors", "tokenizer.json",
                         "tokenizer_config.json")})
        run = self.train(1, adapter_path="org/adapter", **bare)
        self.assertIn("adapter org/adapter is complete", run.out)
        self.assertIn("continuing from adapter", run.notes)
        status, out = self.program("generate", "--model", "org/model", "--adapter", "org/adapter",
                                   "--prompt", "1", "--max-new-tokens", "2", "--raw")
        self.assertEqual(status, 0, out)
        self.assertIn("model org/model is complete", out)
        adapter, = self.home.glob("hub/models--org--adapter/snapshots/*")
        self.assertEqual((adapter / "tokenizer.json").read_bytes(), split[True]["tokenizer.json"])

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
