"""Names of ModelScope: its real program `modelscope` downloads them from a server of ours."""

import os
import pathlib
import shutil
import sys
import unittest
from unittest import mock

import hub
import modelscope_server
from hub import WEIGHTS
from trainer import make_rows

BESIDE = pathlib.Path(sys.executable).parent / "modelscope"
TOOL = str(BESIDE) if BESIDE.exists() else shutil.which("modelscope")


@unittest.skipUnless(TOOL, "modelscope is not installed: pip install modelscope-hub")
class ModelScopeNames(hub.NamesTest):
    def setUp(self):
        super().setUp()
        self.home = self.dir / "modelscope"
        self.server = self.enterContext(modelscope_server.ModelScope())
        self.remote = self.server.add("org/model", {
            path.name: path.read_bytes() for path in self.model.iterdir()}, revisions=["v2"])
        self.server.add("org/rows", {
            "data/train.jsonl": hub.rows_text(self.rows),
            "data/test.jsonl": hub.rows_text(make_rows(8)), "README.md": "# Rows\n"}, kind="dataset")
        shutil.rmtree(self.model)
        self.enterContext(mock.patch.dict(os.environ, {
            "MODELSCOPE_ENDPOINT": self.server.url, "MODELSCOPE_CACHE": str(self.home),
            "HOME": str(self.dir), "USE_MODELSCOPE_HUB": "1", "NO_PROXY": "127.0.0.1",
            "PATH": f"{pathlib.Path(TOOL).parent}:{os.environ['PATH']}"}))
        for name in ("TRANSFORMERS_OFFLINE", "HF_HUB_OFFLINE", "MODELSCOPE_API_TOKEN"):
            os.environ.pop(name, None)

    def test_a_model_and_a_dataset_are_downloaded_once_and_then_used_without_the_hub(self):
        run = self.train(2)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 1)
        self.assertEqual(self.server.contents_sent("data/train.jsonl"), 1)
        self.assertIn(f"downloading model org/model from {self.server.url} to {self.home}", run.out)
        self.assertEqual(run.out.count("dataset org/rows is complete"), 1)
        before = len(self.server.requests)
        with mock.patch.dict(os.environ, PATH="/usr/bin:/bin"):
            again = self.train(2)
        self.assertEqual(len(self.server.requests), before)
        self.assert_same_course(run, again)

    def test_check_downloads_only_the_configuration_and_the_tokenizer(self):
        status, out = self.program("check", self.recipe(max_length=128))
        self.assertEqual(status, 0, out)
        self.assertIn("not checked: dataset org/rows is not in the cache: the run downloads it", out)
        self.assertEqual(self.server.contents_sent("config.json"), 1)
        self.assertEqual(self.server.contents_sent(WEIGHTS), 0)

    def test_a_revision_is_that_of_the_recipe(self):
        status, out = self.run_alone(model_revision="v2")
        self.assertEqual(status, 0, out)
        self.assertTrue(any("Revision=v2" in path for path in self.server.requests))
        self.refused(2, "has no model of this name that you may read", model_revision="v9")

    def test_what_the_hub_refuses_is_explained(self):
        self.refused(2, f"cannot download model org/modle: there is no such path here, and "
                        f"{self.server.url} has no model of this name that you may read; check the name, "
                        "or for a private one run modelscope login", model_name_or_path="org/modle")
        self.remote.statuses = [403] * 10
        self.refused(2, "its owner decides who may use it: request access at "
                        f"{self.server.url}/org/model, then run modelscope login")
        self.remote.statuses = []
        self.remote.token = "ms-mine"
        status, out = self.run_alone({"MODELSCOPE_API_TOKEN": "ms-mine"})
        self.assertEqual(status, 0, out)

    def test_half_a_file_is_requested_again(self):
        """The program itself asks twice."""
        self.remote.truncated = {"tokenizer.json": 2}
        status, out = self.run_alone()
        self.assertEqual(status, 0, out)
        self.assertIn("has sent only a part of a file", out)
        self.assertIn("trying again in 1 s", out)

    def test_without_the_program_the_message_has_the_command_that_installs_it(self):
        self.refused(2, "install modelscope: pip install modelscope", env={"PATH": "/usr/bin:/bin"})


if __name__ == "__main__":
    unittest.main()
