"""scripts/release: wheels, archives, and the libraries that stand in for CUDA's."""

import base64
import csv
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_binary  # noqa: E402
from release import archives, cpu_libraries, elf, wheel  # noqa: E402

TIME = (2026, 1, 2, 3, 4, 6)
SECONDS = 1767323046
PACKAGE = wheel.Package("mgpu-made-up", "1.2", "py3-none-manylinux_2_34_x86_64", "A summary", "Text.",
                        ("torch==2.11.*",))
FILES = [PACKAGE.script("mgpu-made-up", b"#!/bin/sh\n"), wheel.File("mgpu_made_up/table", b"1,2")]
LICENSES = {"LICENSE": b"free"}


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)


class Wheels(FolderTest):
    def write(self, folder="."):
        (self.dir / folder).mkdir(exist_ok=True)
        return wheel.write(self.dir / folder, PACKAGE, FILES, LICENSES, TIME)

    def test_the_same_contents_are_the_same_bytes(self):
        first, second = self.write("a"), self.write("b")
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(first.name, "mgpu_made_up-1.2-py3-none-manylinux_2_34_x86_64.whl")

    def test_the_record_has_the_digest_and_the_size_of_every_file(self):
        with zipfile.ZipFile(self.write()) as archive:
            name = "mgpu_made_up-1.2.dist-info/RECORD"
            rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(name).decode()))}
            self.assertEqual(sorted(rows), sorted(archive.namelist()))
            self.assertEqual(rows.pop(name), ["", ""])
            for file, (digest, size) in rows.items():
                content = archive.read(file)
                self.assertEqual(int(size), len(content))
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
                self.assertEqual(digest, "sha256=" + expected.decode().rstrip("="))

    def test_programs_are_executable_and_metadata_names_what_is_needed(self):
        with zipfile.ZipFile(self.write()) as archive:
            modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
            self.assertEqual(modes["mgpu_made_up-1.2.data/scripts/mgpu-made-up"], 0o100755)
            self.assertEqual(modes["mgpu_made_up/table"], 0o100644)
            text = archive.read("mgpu_made_up-1.2.dist-info/METADATA").decode()
            self.assertIn("Name: mgpu-made-up\nVersion: 1.2\n", text)
            self.assertIn("Requires-Dist: torch==2.11.*\n", text)
            kind = archive.read("mgpu_made_up-1.2.dist-info/WHEEL").decode()
            self.assertIn("Root-Is-Purelib: false\nTag: py3-none-manylinux_2_34_x86_64\n", kind)
            self.assertEqual(archive.read("mgpu_made_up-1.2.dist-info/licenses/LICENSE"), b"free")


class Archives(FolderTest):
    FILES = [("bin/x", b"#!/bin/sh\n", 0o755), ("share/doc/y", b"odd", 0o644)]

    def test_a_tarball_has_folders_modes_and_no_user(self):
        text = archives.tar_bytes(self.FILES, SECONDS, "p/")
        self.assertEqual(text, archives.tar_bytes(self.FILES, SECONDS, "p/"))
        with tarfile.open(fileobj=io.BytesIO(text)) as archive:
            self.assertEqual([(one.name, oct(one.mode)) for one in archive],
                             [("p", "0o755"), ("p/bin", "0o755"), ("p/bin/x", "0o755"),
                              ("p/share", "0o755"), ("p/share/doc", "0o755"),
                              ("p/share/doc/y", "0o644")])
            self.assertEqual({one.uname for one in archive}, {"root"})

    @unittest.skipUnless(shutil.which("dpkg-deb"), "needs dpkg-deb")
    def test_dpkg_reads_the_package(self):
        path = self.dir / "x.deb"
        fields = {"Package": "x", "Version": "1", "Architecture": "amd64", "Maintainer": "a <a@b>",
                  "Description": "made up"}
        path.write_bytes(archives.deb_bytes(fields, self.FILES, SECONDS))
        subprocess.run(["dpkg-deb", "-x", path, self.dir / "out"], check=True)
        self.assertEqual((self.dir / "out/share/doc/y").read_bytes(), b"odd")
        done = subprocess.run(["dpkg-deb", "-f", path, "Package", "Installed-Size"], check=True,
                              capture_output=True, text=True)
        self.assertEqual(done.stdout, "Package: x\nInstalled-Size: 1\n")


class Elf(FolderTest):
    def compile(self, name, source, *options):
        path = self.dir / name
        subprocess.run(["gcc", "-x", "c", "-", "-o", path, *options], input=source, text=True,
                       check=True)
        return path

    def test_a_runpath_is_replaced_by_a_shorter_one_only(self):
        program = self.compile("program", "int main(void) { return 7; }",
                               "-Wl,--enable-new-dtags,-rpath,/a/long/folder:/another")
        self.assertEqual(elf.runpath(program), ["/a/long/folder", "/another"])
        elf.set_runpath(program, ["$ORIGIN/x", "$ORIGIN/y"])
        self.assertEqual(elf.runpath(program), ["$ORIGIN/x", "$ORIGIN/y"])
        self.assertEqual(subprocess.run([program]).returncode, 7)
        with self.assertRaisesRegex(ValueError, "build in a folder with a longer name"):
            elf.set_runpath(program, ["/x" * 40])

    def test_the_platform_is_the_oldest_glibc_that_has_all_symbols(self):
        old = self.compile("old", "int main(void) { return 0; }")
        self.assertEqual(check_binary.platform_tag([old]), "manylinux_2_34_x86_64")
        new = self.compile("new", "int pidfd_open(int, unsigned); int main(void) { return "
                           "pidfd_open(1, 0); }")
        self.assertEqual(check_binary.platform_tag([old, new]), "manylinux_2_36_x86_64")

    def test_a_program_starts_with_the_libraries_that_stand_in_for_cuda(self):
        real, target = self.dir / "real", self.dir / "cpu"
        real.mkdir()
        target.mkdir()
        versions = self.dir / "versions"
        versions.write_text("libcudart.so.13 { global: *; };\n")
        for name, source, options in (
                ("libtorch_cpu.so", "int shared(void) { return 1; }", ()),
                ("libc10.so", "int c10(void) { return 1; }", ()),
                ("libtorch_cuda.so", "int table[9]; int on_gpu(void) { return 1; } "
                 "int shared(void) { return 2; }", ()),
                ("libcudart.so.13", "int cudaFree(int x) { return 1; } "
                 "int __cudaRegisterFatBinary(void) { return 1; }",
                 (f"-Wl,--version-script={versions}",))):
            self.compile(f"real/{name}", source, "-shared", "-fPIC", f"-Wl,-soname,{name}", *options)
        worker = self.compile("worker", """
            int shared(void), on_gpu(void), cudaFree(int), __cudaRegisterFatBinary(void);
            extern int table[9];
            int main(int n, char** v) {
              int sum = __cudaRegisterFatBinary() + 10 * shared() + table[8];
              if (n > 2) return cudaFree(0);
              return n > 1 ? on_gpu() : sum;
            }""", f"-L{real}", "-Wl,--no-as-needed", "-l:libtorch_cuda.so", "-l:libtorch_cpu.so",
                              "-l:libc10.so", "-l:libcudart.so.13", f"-Wl,-rpath,{real}:{target}")
        self.assertEqual(subprocess.run([worker]).returncode, 21)
        cpu_libraries.write_all(worker, [real], target)
        self.assertEqual(sorted(path.name for path in target.iterdir()),
                         ["libcudart.so.13", "libtorch_cuda.so"])
        for name in ("libtorch_cuda.so", "libcudart.so.13"):
            (real / name).unlink()
        done = subprocess.run([worker], capture_output=True, text=True)
        # Without torch_cuda the other library's function is the one that is found.
        self.assertEqual((done.returncode, done.stderr), (10, ""))
        for arguments, function in (["x"], "on_gpu"), (["x", "y"], "cudaFree"):
            done = subprocess.run([worker, *arguments], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr),
                             (1, f"mgpu-train: this torch was built without CUDA, which has no "
                              f"{function}\n"))


class TryingARelease(FolderTest):
    SCRIPTS = ("tests/gpu/try_release.sh", "scripts/release/try_in_chroot.sh")

    def run_script(self, script, *words):
        return subprocess.run([ROOT / script, *words], capture_output=True, text=True,
                              env={**os.environ, "TMPDIR": str(self.dir)})

    def test_mistakes_on_the_command_line_are_named(self):
        for script in self.SCRIPTS:
            self.assertIn("Usage: ", self.run_script(script, "--help").stdout)
            for words, line in ((["--odd"], "unknown option --odd; see"), (["--ranks"], "--ranks needs a ")):
                done = self.run_script(script, *words)
                self.assertEqual((done.returncode, done.stdout), (2, ""), script)
                self.assertIn(line, done.stderr)

    def test_a_folder_without_wheels_is_named_and_nothing_is_left(self):
        done = self.run_script(self.SCRIPTS[0], self.dir)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "", f"try_release: {self.dir} has no mgpu_run-*.whl\n"))
        self.assertEqual(list(self.dir.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
