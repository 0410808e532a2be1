"""The file of release bars, and how a figure is compared with it.

{"tolerance_percent": T, "plan_within_percent": P, "times_best_peer": R,
 "gpus": {GPU: {CASE: {"today": F, "commit": C, "date": D, ...}}}}

GPU is the name that nvidia-smi prints. `today` is the last measured figure, with the commit and the
day of the measurement. The release bar is this figure minus the tolerance, or plus it where less is
better. All other keys of a case are optional, and a case that was never measured has goals only:
`goal`; `memory_gib` and `memory_goal_gib`, today's peak and the wanted one; `beside_goal`, the
wanted ratio to the case that it is compared with; `tolerance_percent` and `times_best_peer` instead
of the values for all cases.
"""

import dataclasses
import json

NUMBERS = ("today", "goal", "memory_gib", "memory_goal_gib", "beside_goal", "tolerance_percent",
           "times_best_peer")
TEXTS = ("commit", "date")
GENERAL = ("tolerance_percent", "plan_within_percent", "times_best_peer")


class BadBars(Exception):
    """The file cannot be used; the text is one line."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """The bars and goals of one case on one kind of GPU."""
    tolerance_percent: float
    times_best_peer: float
    plan_within_percent: float
    today: float | None = None
    commit: str | None = None
    date: str | None = None
    goal: float | None = None
    memory_gib: float | None = None
    memory_goal_gib: float | None = None
    beside_goal: float | None = None

    def release(self, less_is_better):
        sign = 1 if less_is_better else -1
        return self.today and self.today * (1 + sign * self.tolerance_percent / 100)

    def release_memory(self):
        return self.memory_gib and self.memory_gib * (1 + self.tolerance_percent / 100)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e12


def check_keys(where, entry, known, required):
    if not isinstance(entry, dict):
        raise BadBars(f"{where} is not an object")
    for key in entry:
        if key not in known:
            raise BadBars(f"{where} has the unknown key {key}; known are {', '.join(known)}")
    for key in required:
        if key not in entry:
            raise BadBars(f"{where} has no {key}")


def read_bar(where, entry, general):
    check_keys(where, entry, NUMBERS + TEXTS, TEXTS if "today" in entry else ())
    for key, value in entry.items():
        if key in TEXTS and not (isinstance(value, str) and value):
            raise BadBars(f"{where}: {key} is not a text")
        if key in NUMBERS and not is_number(value):
            raise BadBars(f"{where}: {key} is not a number above 0")
    return Bar(**{**general, **entry})


def object_without_repeats(pairs):
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise BadBars(f"the key {key} is in it twice")
    return dict(pairs)


def read_bars(path, cases):
    """{GPU: {case: Bar}} of a file. `cases` are the names that it may use."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise BadBars(f"{path}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadBars(f"{path}: not UTF-8") from None
    try:
        return parse_bars(json.loads(text, object_pairs_hook=object_without_repeats), cases)
    except json.JSONDecodeError as error:
        raise BadBars(f"{path}:{error.lineno}: no JSON: {error.msg}") from None
    except (BadBars, RecursionError) as error:
        raise BadBars(f"{path}: {error}") from None


def parse_bars(root, cases):
    check_keys("the file", root, (*GENERAL, "gpus"), (*GENERAL, "gpus"))
    for key in GENERAL:
        if not is_number(root[key]):
            raise BadBars(f"{key} is not a number above 0")
    general = {key: root[key] for key in GENERAL}
    if not isinstance(root["gpus"], dict):
        raise BadBars("gpus is not an object")
    bars = {}
    for gpu, entries in root["gpus"].items():
        if not isinstance(entries, dict):
            raise BadBars(f"gpus.{gpu} is not an object")
        for name in entries:
            if name not in cases:
                raise BadBars(f"gpus.{gpu} has the unknown case {name}")
        bars[gpu] = {name: read_bar(f"gpus.{gpu}.{name}", entry, general)
                     for name, entry in entries.items()}
    return bars
