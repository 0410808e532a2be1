#!/usr/bin/env python3
"""Checks docs/requirements.md: every promise has one row, and the evidence that a row names exists.

Prints "docs/requirements.md:LINE: finding" per finding and exits with status 1 if there is any. A
row is `| ids | promise | evidence | state |`. Evidence is a list separated by "; ": a file in code
quotes, or several separated by ", ", and after a colon the tests in it: "names of Catch2 cases",
`names_of_python_tests` or a class of Python tests. A page of docs/ may be followed by free text.
"""

import pathlib
import re
import sys

PAGE = "docs/requirements.md"
# The sources and the number of promises in each. Ids are S0-01 to S0-42 and so on.
SOURCES = {"S0": 42, "S1": 11, "S2": 21, "S3": 22, "S4": 11}
IDS = [f"{source}-{number:02}" for source, count in SOURCES.items()
       for number in range(1, count + 1)]
STATES = ("shown", "partly", "no promise")
PLACEHOLDERS = re.compile(r"\b(trainer|GRPO|GSPO|launcher)$|\bbelongs to\b|\bTODO\b|\bTBD\b")
# Folders of tests that are left out of names: a file of tests/launcher is named by its name alone.
UNNAMED = ["tests/launcher", "tests/rendezvous", "tests/runtime/*", "tests/build"]

CODE = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w./-]+\.(cpp|py|md|sh|yaml|txt)$")
PYTHON_TEST = re.compile(r"test_\w+$")
CATCH_NAME = re.compile(r'"((?:[^"\\]|\\.)+)"')
CLASS_NAME = re.compile(r"(?<![\w`\"'])([A-Z]\w+)(?![\w`\"'])")


def find_files(root, name):
    """The files that evidence may mean: one, unless the name is wrong."""
    for candidate in [root / name, root / "tests" / name, root / "tests" / "runtime" / name]:
        if candidate.is_file():
            return [candidate]
    if "/" in name:
        return []
    return [path for folder in UNNAMED for path in root.glob(f"{folder}/{name}")]


def joined_literals(text):
    """C++ source with adjacent string literals joined, so that long names are found."""
    return re.sub(r'"\s*\n\s*"', "", text)


def has_catch_test(text, name):
    return re.search(r'\b(TEST_CASE|SECTION|TEMPLATE_TEST_CASE)\(\s*"' + re.escape(name) + '"',
                     joined_literals(text)) is not None


def missing_tests(path, tests):
    """What is wrong with the tests that evidence names in a file; `tests` is the text after it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".cpp":
        names = CATCH_NAME.findall(tests)
        return names, [f'"{name}"' for name in names if not has_catch_test(text, name)]
    names = [name for name in CODE.findall(tests) if PYTHON_TEST.match(name)]
    missing = [name for name in names if not re.search(rf"^\s+def {name}\(", text, re.M)]
    classes = CLASS_NAME.findall(CODE.sub("", tests))
    missing += [name for name in classes if not re.search(rf"^class {name}\b", text, re.M)]
    return names + classes, missing


class Row:
    """A line of the table: ids, and findings about its evidence and state."""

    def __init__(self, root, number, line):
        self.root, self.number = root, number
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        self.ids = re.split(r",\s*", cells[0])
        self.cells = cells

    def findings(self):
        if len(self.cells) != 4:
            yield f"{self.cells[0]}: a row has four columns, this one has {len(self.cells)}"
            return
        state = self.cells[3]
        if not state.startswith(STATES):
            yield f"{self.cells[0]}: the state begins with one of {', '.join(STATES)}"
        if PLACEHOLDERS.search(state):
            yield f"{self.cells[0]}: the state names a part of the project instead of what is open"
        proven = False
        for item in self.cells[2].split("; "):
            for finding in self.item_findings(item):
                if finding is None:
                    proven = True
                else:
                    yield f"{self.cells[0]}: {finding}"
        if not proven and not state.startswith("no promise"):
            yield f"{self.cells[0]}: no test, script or page is named as evidence"

    def item_findings(self, item):
        """Yields texts, and None for evidence that exists."""
        names, _, tests = item.partition(": ")
        if CATCH_NAME.search(names) or any(map(PYTHON_TEST.match, CODE.findall(names))):
            yield f"a test is named without its file: {names}"
        for name in CODE.findall(names):
            if not FILE.match(name):
                continue
            found = find_files(self.root, name)
            if len(found) != 1:
                yield f"{name} is in several folders: name one" if found else f"{name} does not exist"
                continue
            (path,) = found
            is_test = path.name.startswith("test_") or path.name.endswith("_test.cpp")
            if not is_test:
                yield None
                continue
            named, missing = missing_tests(path, tests)
            for test in missing:
                yield f"{name} has no test {test}"
            if named:
                yield None
            else:
                yield f"{name} is a file of tests: name those that show the row"


def findings(root):
    root = pathlib.Path(root)
    rows = [Row(root, number, line) for number, line in
            enumerate((root / PAGE).read_text(encoding="utf-8").splitlines(), 1)
            if re.match(r"\| S\d-\d\d", line)]
    seen = {}
    for row in rows:
        for name in row.ids:
            if name not in IDS:
                yield row.number, f"{name} is not an id of a promise"
            elif name in seen:
                yield row.number, f"{name} is also in line {seen[name]}"
            seen.setdefault(name, row.number)
        for finding in row.findings():
            yield row.number, finding
    for name in IDS:
        if name not in seen:
            yield 1, f"{name} has no row"


def main():
    found = list(findings(pathlib.Path(__file__).resolve().parents[1]))
    for number, finding in found:
        print(f"{PAGE}:{number}: {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
