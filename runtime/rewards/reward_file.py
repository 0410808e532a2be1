"""Runs one function of a Python reward file. A request is a line of JSON, and so is its answer.

Usage: python3 -c THIS FILE FUNCTION. The function gets TRL's keyword arguments.
"""

import sys

# Before any other import: a file in the current folder must not replace a module. Pythons before 3.11
# do not know PYTHONSAFEPATH.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]

import asyncio
import collections.abc
import importlib.util
import inspect
import json
import math
import os
import traceback

if os.environ.get("PYTHONSAFEPATH") == "mgpu-train":  # set for this program, not for those it starts
    del os.environ["PYTHONSAFEPATH"]

ANSWERS = os.dup(1)
os.dup2(2, 1)  # what the function prints must not be read as an answer
REQUESTS = os.fdopen(os.dup(0), "rb")
EMPTY = os.open(os.devnull, os.O_RDONLY)
os.dup2(EMPTY, 0)  # what the function reads must not be a request
os.close(EMPTY)


def send(message):
    line = (json.dumps(message) + "\n").encode()
    while line:
        line = line[os.write(ANSWERS, line):]


def error_line(error, path, function=None):
    """The error in one line, with the last line of the file in the traceback, or else with the first
    line of the function."""
    kind = "LookupError" if isinstance(error, NoFunction) else type(error).__name__
    text = " ".join(f"{kind}: {error}".split())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if os.path.abspath(frame.filename) == path]
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    if not lines and code and os.path.abspath(code.co_filename) == path:
        lines = [code.co_firstlineno]
    return f"{text} ({path}:{lines[-1]})" if lines else text


class NoFunction(LookupError):
    """The file lacks the function that the recipe names."""


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
        raise NoFunction(f"{path} has no function {name}; it has {', '.join(names) or 'none'}")
    return function


def accepted(function, arguments):
    """The arguments that the function accepts: all of them if it has **kwargs."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    names = {parameter.name for parameter in parameters}
    return {key: value for key, value in arguments.items() if key in names}


def shown(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def number(score, position):
    if score is None:
        return None
    try:
        score = float(score)
    except (TypeError, ValueError):
        raise TypeError(f"its score of completion {position} is {shown(score)}, not a number"
                        ) from None
    if not math.isfinite(score):
        raise ValueError(f"its score of completion {position} is {score}, not a finite number")
    return score


def answer(function, request):
    arguments = dict(request["columns"])
    for key in ("prompts", "completions", "completion_ids"):
        arguments[key] = request[key]
    arguments |= {"trainer_state": None, "log_extra": lambda *_: None,
                  "log_metric": lambda *_: None}
    scores = function(**accepted(function, arguments))
    if inspect.isawaitable(scores):
        async def wait():
            return await scores
        scores = asyncio.run(wait())
    if not isinstance(scores, collections.abc.Iterable):
        raise TypeError(f"it returned {shown(scores)}, not a list with a score for each completion")
    return {"scores": [number(score, position) for position, score in enumerate(scores, 1)]}


def main():
    path, name = os.path.abspath(sys.argv[1]), sys.argv[2]
    try:
        function = load(path, name)
    except BaseException as error:
        # Only if another attempt would find the same.
        wrong = {"is_wrong": True} if isinstance(error, (SyntaxError, NoFunction)) else {}
        send({"error": error_line(error, path)} | wrong)
        return
    send({"ready": True})
    for line in REQUESTS:
        try:
            send(answer(function, json.loads(line)))
        except Exception as error:
            send({"error": error_line(error, path, function)})


main()
