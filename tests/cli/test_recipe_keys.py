"""The launcher keys of a recipe: mgpu-run reads them, mgpu-train leaves them to it. Both have a list
of these keys; docs/keys.md is what mgpu-train prints."""

import json
import pathlib
import re
import unittest

from harness import JobTest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def keys_of_the_trainer():
    """Pairs of a key and the option of mgpu-run that it sets."""
    rows = re.findall(r"^\| (`.*`) \| mgpu-run reads it as its option --(\S+) \|$",
                      (ROOT / "docs" / "keys.md").read_text(), re.MULTILINE)
    return {(key, option) for keys, option in rows for key in re.findall(r"`(\w+)`", keys)}


def keys_of_the_launcher():
    source = (ROOT / "launcher" / "options" / "launch_file.cpp").read_text()
    names = dict(re.findall(r'(k\w+)(?: =|\{) *"(\w+)"', source))
    table = source.split("kRecipeKeys{")[1].split("};")[0]
    return {(key.strip('"') if key.startswith('"') else names[key], option)
            for key, option in re.findall(r'RecipeKey\{("\w+"|\w+), "([\w-]+)"', table)}


class RecipeKeys(JobTest):
    def test_both_programs_have_the_same_launcher_keys(self):
        self.assertGreater(len(keys_of_the_launcher()), 20)
        self.assertEqual(keys_of_the_trainer(), keys_of_the_launcher())

    def test_the_launcher_reads_every_key_that_the_trainer_leaves_to_it(self):
        for key, _ in sorted(keys_of_the_trainer()):
            with self.subTest(key):
                recipe = self.write("recipe.yaml", f"{key}: {json.dumps([1, 2])}\n")
                job = self.run_job("--dry-run", recipe)
                self.assertEqual(job.returncode, 2, job.out + job.err)
                self.assertIn(f"recipe.yaml:1: {key}: need a single value, not a list", job.err)


if __name__ == "__main__":
    unittest.main()
