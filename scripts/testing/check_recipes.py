#!/usr/bin/env python3
"""Runs `mgpu-train check` on every recipe of checkouts of other projects.

    scripts/testing/check_recipes.py [--json FILE] [--only FILE] CHECKOUT...

Recipes are the .yaml and .yml files below CHECKOUT/examples and CHECKOUT/recipes, except files of
accelerate. Each is checked in its checkout without a connection. The results are:

    accepted   check ends with status 0
    refused    one line on standard error, which names what is missing
    unclear    several lines
    failed     a signal, a timeout or any other status

--only FILE checks the recipes that are listed in FILE, as lines "- examples/a.yaml". The exit
status is 1 if a recipe is unclear or failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "recipes")
LIMIT = 60  # seconds for one check
RESULTS = ("accepted", "refused", "unclear", "failed")
# Top-level keys of accelerate's own files.
ACCELERATE = re.compile(r"^(compute_environment|distributed_type):", re.MULTILINE)


def recipes(checkout, only):
    files = sorted(file for folder in FOLDERS for end in ("*.yaml", "*.yml")
                   for file in (checkout / folder).rglob(end) if file.is_file())
    for file in files:
        path = str(file.relative_to(checkout))
        if only is not None and path not in only:
            continue
        if not ACCELERATE.search(file.read_text(errors="replace")):
            yield path


def listed(file):
    if file is None:
        return None
    lines = Path(file).read_text().splitlines()
    return {line[2:].split()[0] for line in lines if line.startswith("- ")}


def result_of(status, lines):
    if status == 0:
        return "accepted"
    if status in (1, 2) and len(lines) == 1:
        return "refused"
    return "unclear" if status in (1, 2) and lines else "failed"


def check(program, checkout, path):
    command = [program, "check", path, "--set", "offline=true"]
    env = dict(os.environ, HF_HUB_OFFLINE="1")
    try:
        run = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True,
                             timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"recipe": path, "result": "failed", "lines": [f"no result after {LIMIT} s"]}
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    notes = run.stdout.partition("\nNotes:\n")[2].partition("\n\n")[0]
    result = result_of(run.returncode, lines)
    return {"recipe": path, "result": result, "lines": lines if result != "accepted" else [],
            "notes": [line.strip() for line in notes.splitlines()]}


def table(projects):
    rows = [("project", "recipes", *RESULTS)]
    for name, results in projects.items():
        counts = Counter(each["result"] for each in results)
        rows.append((name, str(len(results)), *(str(counts[kind]) for kind in RESULTS)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--only", metavar="FILE", help="check only the recipes listed in FILE")
    parser.add_argument("--program", default=SOURCES / "build/bin/mgpu-train", type=Path,
                        metavar="FILE", help="mgpu-train, if it is not the one in build/bin")
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"{options.program} does not exist; build mgpu-train, or set --program")
    only, projects = listed(options.only), {}
    program = options.program.resolve()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for checkout in options.checkouts:
            paths = list(recipes(checkout, only))
            if not paths:
                parser.error(f"{checkout} has no recipes in {' or '.join(FOLDERS)}")
            projects[checkout.resolve().name] = list(
                pool.map(lambda path, root=checkout: check(program, root, path), paths))
    for name, results in projects.items():
        for each in results:
            if each["result"] != "accepted":
                print(f"{each['result']}  {name}  {each['recipe']}")
                print("".join(f"    {line}\n" for line in each["lines"]), end="")
    print(table(projects))
    if options.json:
        options.json.write_text(json.dumps(projects, indent=1) + "\n")
    bad = any(each["result"] in ("unclear", "failed")
              for results in projects.values() for each in results)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
