"""Shared by the tests of names of the Hub: a server of ours with a tiny model and its dataset, and
mgpu-train, which downloads them with the real `hf`."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
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


class NamesTest(trainer.TrainerTest):
    """mgpu-train with names of models and datasets; `home` is the cache."""

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


@unittest.skipUnless(HF.exists(), f"{HF} does not exist")
class HubTest(NamesTest):
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

    def until_weights(self):
        """Waits until only the weights are missing, for which the server has a gate."""
        until(lambda: self.server.contents_sent(WEIGHTS) and len(self.partial_files()) == 1,
              trainer.LIMIT, "the download of the weights")
