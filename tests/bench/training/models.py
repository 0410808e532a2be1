"""Models with random weights in known shapes, and models without weights for plans.

Run as a program it writes one, with a Python that has torch: models.py SHAPE FOLDER
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

GPU_TESTS = pathlib.Path(__file__).resolve().parents[2] / "gpu"
sys.path.insert(0, str(GPU_TESTS))
from random_model import SHAPES, TOKENIZER, config_of, write_model  # noqa: E402, F401


def config_only(settings, shape):
    """The folder of a model without weights, which is enough for a plan."""
    folder = settings.scratch / f"config-{shape}"
    if not folder.exists():
        shutil.copytree(TOKENIZER, folder)
        (folder / "config.json").write_text(json.dumps(config_of(SHAPES[shape])))
    return folder


def with_weights(settings, shape):
    from .settings import Failed, cause_of
    folder = settings.scratch / f"model-{shape}"
    if folder.exists():
        return folder
    if settings.python is None:
        raise Failed("there is no Python with torch to write the model's random weights")
    done = subprocess.run([settings.python, "-B", __file__, shape, f"{folder}.tmp"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        shutil.rmtree(f"{folder}.tmp", ignore_errors=True)
        raise Failed(f"cannot write the model {shape}: {cause_of(done.stdout)}")
    os.sync()  # else the disk is still busy with the model when checkpoints are timed
    os.rename(f"{folder}.tmp", folder)
    return folder


if __name__ == "__main__":
    write_model(pathlib.Path(sys.argv[2]), SHAPES[sys.argv[1]])
