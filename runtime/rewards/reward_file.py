"""Speaks for one function of a file of rewards: a question is a line of JSON, so is its answer.

Runs as: python3 -c THIS FILE FUNCTION. The function gets TRL's keyword arguments.
"""

import asyncio
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback

ANSWERS = os.dup(1)
os.dup2(2, 1)  # what the function prints is no answer


def say(answer):
    line = (json.dumps(answer) + "\n").encode()
    while line:
        line = line[os.write(ANSWERS, line):]


def what_failed(error, path):
    """The error in one line, with the last line of the file that took part."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if os.path.abspath(frame.filename) == path]
    return f"{text} ({path}:{lines[-1]})" if lines else text


def load(path, name):
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("mgpu_reward_file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        names = sorted(key for key, value in vars(module).items()
                       if callable(value) and not key.startswith("_"))
        raise LookupError(f"{path} has no function {name}; it has {', '.join(names) or 'none'}")
    return function


def wanted(function, arguments):
    """The arguments that the function takes: all where it has **kwargs."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    names = {parameter.name for parameter in parameters}
    return {key: value for key, value in arguments.items() if key in names}


def number(score, place):
    if score is None:
        return None
    score = float(score)
    if not math.isfinite(score):
        raise ValueError(f"its score of completion {place} is {score}, no finite number")
    return score


def answer(function, question):
    arguments = dict(question["columns"])
    for key in ("prompts", "completions", "completion_ids"):
        arguments[key] = question[key]
    arguments |= {"trainer_state": None, "log_extra": lambda *_: None,
                  "log_metric": lambda *_: None}
    scores = function(**wanted(function, arguments))
    if inspect.isawaitable(scores):
        async def wait():
            return await scores
        scores = asyncio.run(wait())
    return {"scores": [number(score, place) for place, score in enumerate(scores, 1)]}


def main():
    path, name = os.path.abspath(sys.argv[1]), sys.argv[2]
    try:
        function = load(path, name)
    except BaseException as error:
        say({"error": what_failed(error, path)})
        return
    say({"ready": True})
    for line in sys.stdin.buffer:
        try:
            say(answer(function, json.loads(line)))
        except Exception as error:
            say({"error": what_failed(error, path)})


main()
