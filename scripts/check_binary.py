#!/usr/bin/env python3
"""Checks that a program is one file that starts on any x86-64 Linux with glibc 2.34 or newer.

Also checks that README.md states the size limit that is enforced here. Prints one line per
finding and exits with status 1 if there is any.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
INTERPRETER = "/lib64/ld-linux-x86-64.so.2"
NEWEST_GLIBC = "2.34"  # RHEL 9, Ubuntu 22.04 and everything newer
LARGEST_MIB = 4.0  # of the file without symbols; README.md states the same number
README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def read_elf(path, *options):
    # In the C locale, because readelf translates its output.
    return subprocess.run(["readelf", "-W", *options, path], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}).stdout


def version_of(text):
    return tuple(int(part) for part in text.split("."))


# The glibc of the first distributions whose libstdc++ and libgcc_s have a version of a symbol, as in
# the policies of manylinux.
COMPILER_LIBRARIES = {
    "GLIBCXX": [("3.4.29", "2.34"), ("3.4.30", "2.35"), ("3.4.31", "2.38"), ("3.4.32", "2.39")],
    "GCC": [("11.0.0", "2.34"), ("12.0.0", "2.35"), ("13.0.0", "2.38"), ("14.0.0", "2.39")],
}


def platform_tag(paths):
    """The tag of a wheel with these programs: of the oldest glibc on which all of them start."""
    newest = (2, 17)
    for path in paths:
        for library, version in set(re.findall(r"@+([A-Z]+)_([0-9.]+)\b", read_elf(path, "--dyn-syms"))):
            if library == "GLIBC":
                newest = max(newest, version_of(version))
            for known, glibc in COMPILER_LIBRARIES.get(library, []):
                if version_of(version) >= version_of(known):
                    newest = max(newest, version_of(glibc))
    return f"manylinux_{newest[0]}_{newest[1]}_x86_64"


def dynamic_findings(path):
    dynamic = read_elf(path, "-d")
    for library in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
        if library not in LIBRARIES:
            yield f"needs {library}; link it statically"
    for kind, folders in re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        yield f"has a {kind} ({folders}); it must not depend on a folder"
    if "(TEXTREL)" in dynamic:
        yield "has relocations in its code"
    interpreter = re.search(r"program interpreter: (.+?)\]", read_elf(path, "-l"))
    if interpreter and interpreter[1] != INTERPRETER:
        yield f"uses the loader {interpreter[1]} instead of {INTERPRETER}"


def version_findings(path, newest):
    symbols = re.findall(r"UND\s+(\S+)@(GLIBC[A-Z]*)_([0-9.]+|PRIVATE)", read_elf(path, "--dyn-syms"))
    for symbol, library, version in sorted(set(symbols)):
        if library != "GLIBC" or version == "PRIVATE" or version_of(version) > version_of(newest):
            yield (f"imports {symbol}@{library}_{version}, newer than GLIBC_{newest}; "
                   "avoid it or add it to launcher/shims.cpp")


def size_findings(path, largest_mib):
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "stripped")
        subprocess.run(["strip", "-o", stripped, path], check=True)
        mib = os.path.getsize(stripped) / 2**20
    if mib > largest_mib:
        yield f"is {mib:.2f} MiB without symbols, more than {largest_mib:g} MiB"


def readme_findings(text, largest_mib=LARGEST_MIB):
    """What is wrong with the size that the text of README.md states."""
    stated = re.findall(r"under (\d+(?:\.\d+)?) MiB when stripped", text)
    if not stated:
        yield f'does not state "under {largest_mib:g} MiB when stripped"'
    for number in stated:
        if float(number) != largest_mib:
            yield f"states under {number} MiB, but scripts/check_binary.py allows {largest_mib:g} MiB"


def findings(path, newest=NEWEST_GLIBC, largest_mib=LARGEST_MIB):
    return [*dynamic_findings(path), *version_findings(path, newest),
            *size_findings(path, largest_mib)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--newest-glibc", default=NEWEST_GLIBC, metavar="VERSION")
    parser.add_argument("--largest-mib", default=LARGEST_MIB, type=float, metavar="SIZE")
    args = parser.parse_args()
    if not os.path.isfile(args.program):
        parser.error(f"{args.program} does not exist; build it first")
    found = [f"{args.program} {line}"
             for line in findings(args.program, args.newest_glibc, args.largest_mib)]
    found += [f"README.md {line}" for line in readme_findings(README.read_text(encoding="utf-8"))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
