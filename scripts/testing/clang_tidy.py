"""Runs clang-tidy on the launcher and on rendezvous, on the files that the build compiles."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex

from testing.steps import CORES, ROOT, SPENT, Outcome, run


def included_text(path, seen):
    """The text of a file and of all files of this repository that it includes, each once."""
    if path in seen or not path.is_file():
        return ""
    seen.add(path)
    text = path.read_text()
    return text + "".join(included_text(ROOT / name, seen)
                          for name in re.findall(r'^#include "(.+)"', text, re.M))


def tidy_cache():
    """Where results are kept: beside ccache's, so that a fresh clone finds those of the last run."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(os.environ.get("CCACHE_DIR") or home) / "mgpu-tidy"


def tidy_command(entry):
    """The compiler's arguments as clang-tidy is to see them: clang cannot read gcc's precompiled
    headers, and every file includes what it uses."""
    words = shlex.split(entry["command"])
    start = next(n for n, word in enumerate(words) if re.search(r"(c|g|clang)\+\+(-\d+)?$", word))
    words = words[start:]
    kept = []
    for word in words:
        if word.endswith("cmake_pch.hxx") and kept and kept[-1] == "-include":
            kept.pop()
        elif word != "-Winvalid-pch":
            kept.append(word)
    return kept


# These look at the main file only, so they run on each source that has a line for them; all others
# run on the files that the build made of several sources.
MAIN_FILE_CHECKS = "misc-unused-alias-decls,misc-unused-using-decls,bugprone-suspicious-include"
MAIN_FILE_LINE = re.compile(
    r"^\s*(using (?!namespace\b)[\w:]+;|namespace \w+ =|#\s*include .*\.c)", re.M)


def tidy_runs(entry):
    """The runs of clang-tidy for a file of compile_commands.json, as pairs of an entry and the value
    of --checks: one for the file, and if it includes several sources, one for each of these that has
    a line for the checks of main files."""
    file = pathlib.Path(entry["file"])
    if file.parent.name != "unity":
        yield entry, ""
        return
    yield entry, "-bugprone-suspicious-include"
    for name in re.findall(r'^#include "(.+)"', file.read_text(), re.M):
        source = str(ROOT / name)
        if MAIN_FILE_LINE.search(pathlib.Path(source).read_text()):
            arguments = [source if word == entry["file"] else word for word in entry["arguments"]]
            yield ({"directory": entry["directory"], "file": source, "arguments": arguments},
                   "-*," + MAIN_FILE_CHECKS)


def tidy_one(entry, checks, version, folder):
    """Runs clang-tidy on a file unless it was clean before with the same text and rules."""
    text = [version, (ROOT / ".clang-tidy").read_text(), " ".join(entry["arguments"]), checks,
            included_text(pathlib.Path(entry["file"]), set())]
    key = hashlib.sha256("\0".join(part.replace(str(ROOT), "") for part in text).encode())
    known_clean = tidy_cache() / key.hexdigest()
    if known_clean.exists():
        return 0, ""
    status, output = run(["clang-tidy-19", "-p", folder, "--quiet", "--warnings-as-errors=*",
                          f"--checks={checks}", entry["file"]], 600, nice=19)
    if status == 0:
        known_clean.parent.mkdir(parents=True, exist_ok=True)
        known_clean.touch()
    return status, output


def is_tidied(file):
    """Whether clang-tidy runs on this file of compile_commands.json: sources of the launcher and of
    rendezvous, which the build compiles some at a time, in files of its own."""
    parts = pathlib.Path(file).relative_to(ROOT).parts
    parts = parts[1:] if parts[0] == "build" else parts
    return parts[0] in ("launcher", "rendezvous") and "cmake_pch" not in parts[-1]


def write_database(folder, entries):
    """Writes compile_commands.json for clang-tidy. A file that it cannot read is not an error for
    clang-tidy: it goes on with that of the parent folder, which is for another compiler."""
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(entries))


def tidy_all():
    version = run(["clang-tidy-19", "--version"], 60)[1]
    folder = ROOT / "build" / "tidy"
    runs = [one for entry in json.loads((ROOT / "build/compile_commands.json").read_text())
            if is_tidied(entry["file"])
            for one in tidy_runs({"directory": entry["directory"], "file": entry["file"],
                                  "arguments": tidy_command(entry)})]
    write_database(folder, [entry for entry, _ in runs])

    def one(entry, checks):
        before = SPENT.cpu
        status, output = tidy_one(entry, checks, version, folder)
        return status, output, SPENT.cpu - before

    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        results = list(pool.map(one, *zip(*runs)))
    SPENT.cpu += sum(cpu for *_, cpu in results)
    return Outcome.of_check(max((abs(status) for status, *_ in results), default=1),
                            "".join(output for status, output, _ in results if status != 0))
