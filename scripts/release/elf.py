"""Reads and changes the ELF files that a release contains. Needs readelf."""

import os
import pathlib
import re
import struct
import subprocess

DT_STRTAB, DT_RUNPATH = 5, 29
PT_LOAD, PT_DYNAMIC = 1, 2


def read_elf(path, *options):
    # In the C locale, because readelf translates its output.
    return subprocess.run(["readelf", "-W", *options, path], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}).stdout


def needed(path):
    """The names of the shared libraries that a file links."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", read_elf(path, "-d"))


def runpath(path):
    found = re.search(r"\(RUNPATH\).*\[(.*)\]", read_elf(path, "-d"))
    return found[1].split(":") if found else []


def symbols(path):
    """Rows (kind, binding, section, size, name, version) of the dynamic symbols."""
    rows = []
    for line in read_elf(path, "--dyn-syms").splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].rstrip(":").isdigit():
            continue
        name, _, version = words[7].partition("@")
        rows.append((words[3], words[4], words[6], int(words[2], 0), name, version.lstrip("@")))
    return rows


def copied(path):
    """The names of variables of libraries of which the program has its own copy."""
    return {line.split()[4].partition("@")[0]
            for line in read_elf(path, "-r").splitlines() if "R_X86_64_COPY" in line}


def set_runpath(path, folders):
    """Replaces the RUNPATH in place. The new one may not be longer than the old one."""
    path = pathlib.Path(path)
    elf = bytearray(path.read_bytes())
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    at, = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", elf, at + size * i) for i in range(count)]
    dynamic = next(s for s in segments if s[0] == PT_DYNAMIC)
    entries = dict(struct.iter_unpack("<QQ", elf[dynamic[2]:dynamic[2] + dynamic[5]]))
    if DT_RUNPATH not in entries:
        raise ValueError(f"{path} has no RUNPATH")
    table = next(s[2] + entries[DT_STRTAB] - s[3] for s in segments
                 if s[0] == PT_LOAD and s[3] <= entries[DT_STRTAB] < s[3] + s[5])
    begin = table + entries[DT_RUNPATH]
    end = elf.index(0, begin)
    new = ":".join(folders).encode()
    if len(new) > end - begin:
        raise ValueError(f"the RUNPATH of {path} has {end - begin} bytes, fewer than the "
                         f"{len(new)} of {new.decode()}; build in a folder with a longer name")
    elf[begin:end] = new.ljust(end - begin, b"\0")
    path.write_bytes(elf)
