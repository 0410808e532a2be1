"""Writes libraries that take the place of CUDA's where torch is a build without CUDA.

The worker links libtorch_cuda, libc10_cuda, libcudart and libnccl. A torch without CUDA has none of
them, and the loader would refuse to start the worker. Libraries of the same names in the last folder of
its RUNPATH have the symbols that it uses: there are no GPUs, and what only a GPU needs ends the program
with a message. See docs/decisions/0006-one-worker.md.
"""

import pathlib
import subprocess
import tempfile

from release import elf

REPLACED = ("libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.", "libnccl.so.")
# What a worker calls without a GPU: it registers its kernels, and counts the GPUs, of which there are 0.
HARMLESS = {"__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary",
            "__cudaRegisterFunction", "__cudaRegisterVar", "cudaGetDeviceCount",
            "_ZN3c104cuda12device_countEv"}

BEGINNING = r"""
extern long write(int, const void *, unsigned long);
extern void _exit(int) __attribute__((noreturn));
static void fail(const char *name, unsigned long size) {
  static const char reason[] = "mgpu-train: this torch was built without CUDA, which has no ";
  write(2, reason, sizeof reason - 1);
  write(2, name, size);
  write(2, "\n", 1);
  _exit(1);
}
"""


def find(name, folders):
    for folder in folders:
        if (path := pathlib.Path(folder, name)).exists():
            return path
    raise FileNotFoundError(f"{name} is in none of {' '.join(map(str, folders))}")


def source(functions, variables):
    text = BEGINNING
    for name in functions:
        if name in HARMLESS:
            text += f"void *{name}(void) {{ return 0; }}\n"
        else:
            text += f'void *{name}(void) {{ fail("{name}", {len(name)}); return 0; }}\n'
    for name, size in variables:
        text += f"char {name}[{max(size, 1)}] __attribute__((aligned(32)));\n"
    return text


def version_script(versions):
    """Symbols without a version are exported anyway."""
    return "".join(f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
                   for version, names in versions.items() if version)


def build(name, wanted, target):
    """Compiles the library `name` with the symbols `wanted`: rows (kind, size, name, version)."""
    functions = [n for kind, _, n, _ in wanted if kind in ("FUNC", "IFUNC")]
    variables = [(n, size) for kind, size, n, _ in wanted if kind not in ("FUNC", "IFUNC")]
    versions = {}
    for _, _, symbol, version in wanted:
        versions.setdefault(version, []).append(symbol)
    with tempfile.TemporaryDirectory() as folder:
        code, script = pathlib.Path(folder, "library.c"), pathlib.Path(folder, "versions")
        code.write_text(source(functions, variables))
        script.write_text(version_script(versions))
        options = [f"-Wl,--version-script={script}"] if any(versions) else []
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-nostdlib", "-fno-builtin", "-w", "-s",
                        "-Wl,--build-id=none,-z,relro,-z,noexecstack", f"-Wl,-soname,{name}",
                        *options, "-o", target, code], check=True)


def write_all(worker, folders, target):
    """Writes into `target` the libraries for this worker; `folders` have the real ones."""
    needs = elf.needed(worker)
    of_cpus = set()
    for name in ("libtorch_cpu.so", "libc10.so"):
        of_cpus |= {row[4] for row in elf.symbols(find(name, folders)) if row[2] != "UND"}
    used = {row[4]: row[5] for row in elf.symbols(worker) if row[2] == "UND" and row[1] != "WEAK"}
    used |= {name: "" for name in elf.copied(worker)}
    written = []
    for name in needs:
        if not name.startswith(REPLACED):
            continue
        real = {row[4]: row for row in elf.symbols(find(name, folders)) if row[2] != "UND"}
        wanted = sorted((real[symbol][0], real[symbol][3], symbol, real[symbol][5])
                        for symbol in used if symbol in real and symbol not in of_cpus)
        path = pathlib.Path(target, name)
        build(name, wanted, path)
        written.append(path)
    return written
