#!/usr/bin/env python3
"""Writes a release into a folder: wheels of mgpu-run and mgpu-train, a .deb of mgpu-run, a tarball of
both, a Containerfile and SHA256SUMS.

It takes the programs of a build folder as they are. The same programs give the same files, byte for
byte. scripts/package.sh builds the programs and calls this.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_binary  # noqa: E402
from release import archives, cpu_libraries, elf, wheel  # noqa: E402

TEMPLATES = pathlib.Path(__file__).resolve().parent
# From mgpu_train/ and from libexec/mgpu/; the last folder is the one of cpu_libraries.py.
RUNPATH = ["$ORIGIN/../torch/lib", "$ORIGIN/../nvidia/{cuda}/lib", "$ORIGIN/../nvidia/nccl/lib",
           "$ORIGIN/cpu"]
# Debian packages whose code is linked statically, or whose headers have code.
LINKED_PACKAGES = ["libboost*-dev", "libcli11-dev", "libfmt-dev", "libpcre2-dev", "libssl-dev",
                   "libutf8proc-dev", "libxxhash-dev", "libyaml-cpp-dev", "libzstd-dev",
                   "nlohmann-json3-dev", "libstdc++-*-dev", "zlib1g-dev"]
SUMMARIES = {
    "mgpu-run": "Starts one process per GPU on one or many machines, supervises and restarts them",
    "mgpu-train": "Fine-tunes language models on all GPUs with one command, without Python",
}


def seconds_of_release():
    """SOURCE_DATE_EPOCH, else the time of the commit: when files of a release were changed last."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True,
                          text=True)
    return int(done.stdout) if done.returncode == 0 else 315532800


def project_version():
    found = re.search(r"project\(mgpu VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    return found[1]


def stripped(path):
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder, path.name)
        subprocess.run(["strip", "-o", target, path], check=True)
        return target.read_bytes()


def python_value(text, name):
    """The quoted value in version.py; None if it is None."""
    found = re.search(rf"^{name}\b[^=\n]*= *'([^']*)'", text, re.M)
    return found[1] if found else None


def architectures_of(build):
    """The GPUs that the build has code for, as CMake names them; none: no CUDA compiler was used."""
    path = build / "architectures.txt"
    return path.read_text().split() if path.exists() else []


def package_notices(site, name):
    """The licence of a Python package whose headers the worker or the plug-in contains."""
    text = []
    for path in sorted(site.glob(f"{name}-*.dist-info/licenses/*")):
        text.append(f"\n{'=' * 78}\n{name}: {path.name}\n{'=' * 78}\n\n")
        text.append(path.read_text(errors="replace"))
    return "".join(text).encode()


def third_party_notices():
    text = ["mgpu contains code of the following packages.\n"]
    for pattern in LINKED_PACKAGES:
        for path in sorted(pathlib.Path("/usr/share/doc").glob(f"{pattern}/copyright")):
            if re.fullmatch(r"libboost[0-9.]*-dev|(?!libboost).*", path.parent.name):
                text.append(f"\n{'=' * 78}\n{path.parent.name}\n{'=' * 78}\n\n")
                text.append(path.read_text(errors="replace"))
    return "".join(text).encode()


class Worker:
    """The worker of a build folder, prepared for a package: its own RUNPATH, and what stands in for
    CUDA's libraries where torch has none."""

    def __init__(self, build, version):
        source = build / "libexec" / "mgpu" / "mgpu-train"
        folders = elf.runpath(source)
        torch = next(pathlib.Path(f).parent for f in folders
                     if pathlib.Path(f, "libtorch_cpu.so").exists())
        text = (torch / "version.py").read_text()
        self.torch = python_value(text, "__version__").partition("+")[0]
        self.cuda = python_value(text, "cuda") or ""
        self.notices = package_notices(torch.parent, "torch")
        self.notices += package_notices(torch.parent, "nvidia_cudnn_frontend")
        major = self.cuda.partition(".")[0]
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "mgpu-train")
            target.write_bytes(stripped(source))
            target.chmod(0o755)
            elf.set_runpath(target, [f.format(cuda=f"cu{major}") for f in RUNPATH])
            self.files = [wheel.File("mgpu-train", target.read_bytes(), True)]
            search = [*folders, *map(str, torch.parent.glob("nvidia/*/lib"))]
            for path in cpu_libraries.write_all(source, search, folder):
                self.files.append(wheel.File(f"cpu/{path.name}", path.read_bytes(), True))
            plugin = source.parent / "mgpu-columnar.so"
            if plugin.exists():
                self.notices += package_notices(pathlib.Path(elf.runpath(plugin)[0]).parent, "pyarrow")
                target = pathlib.Path(folder, plugin.name)
                target.write_bytes(stripped(plugin))
                elf.set_runpath(target, ["$ORIGIN/../pyarrow"])
                self.files.append(wheel.File(plugin.name, target.read_bytes(), True))
        about = {"version": version, "torch": self.torch, "cuda": self.cuda,
                 "architectures": architectures_of(build)}
        self.files.append(wheel.File("build.json", (json.dumps(about) + "\n").encode()))
        self.paths = [source, *(p for p in [source.parent / "mgpu-columnar.so"] if p.exists())]


def description(name):
    return (f"`{name}` is one of the two programs of mgpu. {SUMMARIES[name]}.\n\n"
            "    pip install mgpu_run-*.whl mgpu_train-*.whl    # the files of a release\n"
            "    mgpu-train quickstart && cd quickstart && mgpu-run --nproc 2 quickstart.yaml\n")


def write_wheels(folder, build, version, worker, licenses, time):
    """`licenses` are those of mgpu-run and those of mgpu-train."""
    run, train = build / "bin" / "mgpu-run", build / "bin" / "mgpu-train"
    package = wheel.Package("mgpu-run", version, f"py3-none-{check_binary.platform_tag([run])}",
                            SUMMARIES["mgpu-run"], description("mgpu-run"))
    yield wheel.write(folder, package, [package.script("mgpu-run", stripped(run))], licenses[0], time)
    release = ".".join(worker.torch.split(".")[:2])
    tag = check_binary.platform_tag([train, *worker.paths])
    package = wheel.Package("mgpu-train", version, f"py3-none-{tag}", SUMMARIES["mgpu-train"],
                            description("mgpu-train"), (f"torch=={release}.*",), ">=3.10")
    files = [wheel.File(f"mgpu_train/{f.name}", f.content, f.executable) for f in worker.files]
    files.append(package.script("mgpu-train", stripped(train)))
    yield wheel.write(folder, package, files, licenses[1], time)


def write_deb(folder, build, version, licenses, seconds):
    fields = {"Package": "mgpu-run", "Version": version, "Architecture": "amd64",
              "Maintainer": "mgpu-run <https://github.com/mgpu-run/mgpu-train>",
              "Depends": "libc6 (>= 2.34)", "Section": "utils", "Priority": "optional",
              "Description": SUMMARIES["mgpu-run"]}
    notices = b"\n".join(licenses.values())
    files = [("usr/bin/mgpu-run", stripped(build / "bin" / "mgpu-run"), 0o755),
             ("usr/share/doc/mgpu-run/copyright", notices, 0o644)]
    path = folder / f"mgpu-run_{version}_amd64.deb"
    path.write_bytes(archives.deb_bytes(fields, files, seconds))
    return path


def write_tarball(folder, build, version, worker, licenses, seconds):
    name = f"mgpu-{version}-linux-x86_64"
    files = [(f"bin/{program}", stripped(build / "bin" / program), 0o755)
             for program in ("mgpu-run", "mgpu-train")]
    files += [(f"libexec/mgpu/{f.name}", f.content, 0o755 if f.executable else 0o644)
              for f in worker.files]
    files += [(license_name, text, 0o644) for license_name, text in licenses.items()]
    files.append(("install.sh", (TEMPLATES / "install.sh").read_bytes(), 0o755))
    path = folder / f"{name}.tar.gz"
    path.write_bytes(archives.tar_bytes(files, seconds, f"{name}/"))
    return path


def write_all(build, folder):
    folder.mkdir(parents=True, exist_ok=True)
    version, seconds = project_version(), seconds_of_release()
    # Zip files have no dates before 1980, and only even seconds.
    date = datetime.datetime.fromtimestamp(max(seconds, 315532800), datetime.timezone.utc)
    time = (date.year, date.month, date.day, date.hour, date.minute, date.second // 2 * 2)
    licenses = {"LICENSE": (ROOT / "LICENSE").read_bytes(), "THIRD-PARTY": third_party_notices()}
    worker = Worker(build, version)
    all_licenses = {**licenses, "THIRD-PARTY": licenses["THIRD-PARTY"] + worker.notices}
    written = [*write_wheels(folder, build, version, worker, (licenses, all_licenses), time),
               write_deb(folder, build, version, licenses, seconds),
               write_tarball(folder, build, version, worker, all_licenses, seconds)]
    containerfile = folder / "Containerfile"
    containerfile.write_bytes((TEMPLATES / "Containerfile").read_bytes())
    written.append(containerfile)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
                   for path in sorted(written))
    (folder / "SHA256SUMS").write_text(sums)
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-package")
    parser.add_argument("--dist", type=pathlib.Path, default=ROOT / "dist")
    args = parser.parse_args()
    for program in ("bin/mgpu-run", "bin/mgpu-train", "libexec/mgpu/mgpu-train"):
        if not (args.build / program).exists():
            parser.error(f"{args.build / program} does not exist; run scripts/package.sh")
    for path in write_all(args.build.resolve(), args.dist):
        print(f"{path.stat().st_size / 2**20:7.2f} MiB  {path}")


if __name__ == "__main__":
    main()
