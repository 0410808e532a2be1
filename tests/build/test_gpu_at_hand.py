"""What building does on a machine with a GPU: nvidia-smi, the compiler and pip are scripts."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVCC = "#!/bin/sh\nprintf 'compute_75\\ncompute_80\\ncompute_86\\ncompute_90\\ncompute_100\\n'\n"


class GpuAtHand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "bin").mkdir()

    def program(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path


class Architectures(GpuAtHand):
    def chosen(self, smi):
        """The architectures for a machine whose nvidia-smi is this script."""
        self.program("bin/nvidia-smi", f"#!/bin/sh\n{smi}\n")
        script = self.program("script.cmake", f"""
            include({ROOT}/scripts/cmake/CudaArchitectures.cmake)
            mgpu_choose_architectures(found {self.program('nvcc', NVCC)})
            message(NOTICE "found ${{found}}")""")
        done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True,
                              env={**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"})
        return done.stderr.strip().removeprefix("found ")

    def test_code_is_made_for_the_gpus_of_the_machine(self):
        self.assertEqual(self.chosen("echo 8.6"), "86")
        self.assertEqual(self.chosen("echo 9.0; echo 9.0; echo 10.0; echo 8.0"), "80;90;100")

    def test_without_a_gpu_code_is_made_for_8_0_and_9_0(self):
        self.assertEqual(self.chosen("echo 'No devices were found' >&2; exit 6"), "80-real;90")
        self.assertEqual(self.chosen("echo '[N/A]'"), "80-real;90")

    def test_a_gpu_that_the_compiler_does_not_know_is_left_out(self):
        self.assertEqual(self.chosen("echo 6.1"), "80-real;90")
        self.assertEqual(self.chosen("echo 6.1; echo 7.5"), "75")


class Compiler(GpuAtHand):
    def nvcc(self, name, release):
        return self.program(name, f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V1'\n")

    def output_of(self, commands, **variables):
        """What these commands of CMake print, with only our nvcc on PATH."""
        script = self.program("script.cmake", f"include({ROOT}/scripts/cmake/CudaCompiler.cmake)\n{commands}")
        done = subprocess.run([shutil.which("cmake"), "-P", script], capture_output=True, text=True,
                              check=True, env={"PATH": f"{self.dir}/bin:{self.dir}/bin:/bin", **variables})
        return done.stderr

    def found(self, major, **variables):
        return self.output_of(f"""mgpu_find_nvcc(found {major} {self.dir}/site)
            message(NOTICE "found ${{found}}")""", **variables).strip().removeprefix("found").strip()

    def reason(self, major, torch):
        return self.output_of(f"""mgpu_find_nvcc(nvcc {major} {self.dir}/site)
            mgpu_explain_no_nvcc(reason {major} {torch} "${{nvcc_OTHERS}}")
            message(NOTICE "${{reason}}")""")

    def test_the_compiler_beside_torch_comes_before_that_on_path(self):
        self.nvcc("bin/nvcc", "13.1")
        self.assertEqual(self.found(13), f"{self.dir}/bin/nvcc")
        beside = self.nvcc("site/nvidia/cu13/bin/nvcc", "13.0")
        self.assertEqual(self.found(13), str(beside))

    def test_a_compiler_of_another_version_of_cuda_is_not_taken(self):
        self.nvcc("bin/nvcc", "12.4")
        self.nvcc("site/nvidia/cu99/bin/nvcc", "98.0")
        self.assertEqual(self.found(12), f"{self.dir}/bin/nvcc")
        self.assertEqual(self.found(99), "")

    def test_a_compiler_in_cuda_path_is_found(self):
        nvcc = self.nvcc("toolkit/bin/nvcc", "98.4")
        self.assertEqual(self.found(98, CUDA_PATH=f"{self.dir}/toolkit"), str(nvcc))

    def test_a_missing_compiler_is_one_line_that_names_those_of_other_versions(self):
        needed = "no nvcc 98.x on PATH, which torch 9.9.0 needs"
        advice = ("GPUs run without our kernels, which is slower; put nvcc 98.x on PATH and build "
                  "again\n")
        other = self.nvcc("bin/nvcc", "13.0")
        self.assertIn(f"{needed}; found 13.0 ({other})", self.reason(98, "9.9.0"))
        self.assertTrue(self.reason(98, "9.9.0").endswith(f": {advice}"))
        self.assertEqual(self.reason(98, "9.9.0").count("\n"), 1)
        self.assertEqual(self.reason(98, "9.9.0").count(str(other)), 1)

    def test_a_chosen_compiler_of_another_version_is_an_error_of_one_line(self):
        for torch, major, version in (("2.10.0+cu128", 12, "13.0.88"), ("2.11.0+cu130", 13, "12.4.131")):
            with self.subTest(torch=torch):
                self.assertEqual(
                    self.output_of(f"""
                        mgpu_explain_unfit_compiler(reason /c/nvcc {version} {major} {torch})
                        message(NOTICE "${{reason}}")"""),
                    f"the CUDA compiler /c/nvcc has version {version}, and torch {torch} needs nvcc "
                    f"{major}.x; change CUDACXX or CMAKE_CUDA_COMPILER, and use another build folder\n")
        self.assertEqual(self.output_of("""mgpu_explain_unfit_compiler(reason /c/nvcc 12.4.1 12 2.10.0)
            message(NOTICE "${reason}")"""), "\n")


class Setup(GpuAtHand):
    def set_up(self, *options, **others):
        """What setup.sh has pip and apt-get install on a machine with torch and no CUDA compiler.
        `candidate` is the version of nvidia-cuda-toolkit that apt offers, and `driver` a script that
        succeeds if the driver is of a package."""
        done, installed = self.run_setup(*options, **others)
        self.assertEqual(done.returncode, 0, done.stderr)
        return installed

    def run_setup(self, *options, smi="echo 'GPU 0: made up'", candidate="", driver="exit 0",
                  apt_get="", pip="", **variables):
        scripts = self.dir / "tree" / "scripts"
        scripts.mkdir(parents=True, exist_ok=True)
        for name in ("setup.sh", "requirements.txt", "requirements-cuda.txt"):
            shutil.copy(ROOT / "scripts" / name, scripts)
        self.program("tree/scripts/torch_python.sh", "#!/bin/sh\necho python3\n")
        self.program("tree/.deps/venv/bin/pip", f"#!/bin/sh\necho \"$*\" >>{self.dir}/installed\n{pip}\n")
        self.program("bin/nvidia-smi", f"#!/bin/sh\n{smi}\n")
        # The torch that is not pinned is for CUDA 12.8. All system packages are there.
        self.program("bin/python3", "#!/bin/sh\necho 12.8\n")
        self.program("bin/dpkg", "#!/bin/sh\necho 'Status: install ok installed'\n"
                     f'if [ "$1" = -S ]; then {driver}; fi\n')
        self.program("bin/apt-cache", f"#!/bin/sh\necho '  Candidate: {candidate or '(none)'}'\n")
        self.program("bin/apt-get", f"#!/bin/sh\necho \"apt $*\" >>{self.dir}/installed\n{apt_get}\n")
        self.program("bin/sudo", '#!/bin/sh\nexec "$@"\n')
        for name in ("bash", "env", "sed", "dirname", "mktemp", "rm", "grep", "cat", "id"):
            link = self.dir / "bin" / name
            if not link.exists():
                link.symlink_to(shutil.which(name))
        done = subprocess.run([scripts / "setup.sh", *options], capture_output=True, text=True,
                              env={"PATH": f"{self.dir}/bin", "MGPU_NO_INSTALL": "1", **variables})
        installed = self.dir / "installed"
        return done, installed.read_text() if installed.exists() else ""

    def test_the_cuda_compiler_is_installed_where_there_is_a_gpu_and_none(self):
        self.assertIn("requirements-cuda.txt", self.set_up("--torch"))

    def test_no_compiler_is_installed_without_a_gpu(self):
        self.assertEqual(self.set_up("--torch", smi="exit 9"), "")

    def test_a_compiler_on_path_is_used(self):
        self.program("bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        self.assertEqual(self.set_up("--torch"), "")

    def test_a_torch_for_cuda_12_gets_the_compiler_of_the_system(self):
        installed = self.set_up("--torch=2.10.0", candidate="12.4.131~12.4.1-2", MGPU_NO_INSTALL="")
        self.assertIn("install -y --no-install-recommends nvidia-cuda-toolkit", installed)
        self.assertNotIn("requirements-cuda.txt", installed)

    def test_a_system_without_a_compiler_of_cuda_12_builds_without_our_kernels(self):
        for candidate in ("11.8.89~11.8.0-5", ""):
            with self.subTest(candidate=candidate):
                done, installed = self.run_setup("--torch=2.10.0", candidate=candidate,
                                                 MGPU_NO_INSTALL="")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn(" install ", installed)
                self.assertIn("setup: no nvcc of CUDA 12 was found, so GPUs run without our kernels; "
                              "Debian 13 ", done.stdout)
                self.assertIn("none (no nvcc 12.x on PATH), a build without our kernels", done.stdout)
        done, _ = self.run_setup("--torch=2.10.0", "--cuda")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("setup: no nvcc of CUDA 12 was found; Debian 13 ", done.stderr)

    def test_a_failed_installation_of_the_compiler_names_the_component_that_debian_13_needs_too(self):
        # The package itself is in non-free, and libcuda1 depends on packages of contrib.
        done, _ = self.run_setup("--torch=2.10.0", candidate="12.4.131~12.4.1-2", MGPU_NO_INSTALL="",
                                 apt_get='case $* in *toolkit*) exit 100 ;; esac')
        self.assertEqual((done.returncode, done.stderr), (
            1, "setup: apt-get install nvidia-cuda-toolkit failed; on Debian 13 the component contrib "
            "must be enabled too\n"))

    def test_a_failed_pip_names_the_package_and_no_temporary_file(self):
        done, _ = self.run_setup("--torch", "--cuda", pip="exit 1")
        self.assertEqual((done.returncode, done.stderr), (
            1, "setup: pip could not install nvcc 13.0; is there a network, and does PyPI have it for "
            "this Python?\n"))

    def test_the_libraries_of_a_second_driver_are_not_installed(self):
        options = dict(candidate="12.4.131~12.4.1-2", MGPU_NO_INSTALL="", driver="exit 1")
        done, installed = self.run_setup("--torch=2.10.0", "--cuda", **options)
        self.assertNotIn(" install ", installed)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("would add a second driver's libraries", done.stderr)
        self.assertIn("install -y", self.set_up("--torch=2.10.0", "--cuda", smi="exit 9", **options))

    def test_a_compiler_of_cuda_12_on_path_is_used_for_a_torch_for_cuda_12(self):
        self.program("bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
        self.assertEqual(self.set_up("--torch=2.10.0"), "")
        self.assertIn("requirements-cuda.txt", self.set_up("--torch"))


class Package(GpuAtHand):
    def test_a_release_without_kernels_is_refused_before_it_is_built(self):
        # Without a CUDA compiler the list of architectures is an empty line.
        scripts = self.dir / "tree" / "scripts"
        scripts.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "package.sh", scripts)
        self.program("tree/scripts/setup.sh", "#!/bin/sh\n")
        self.program("bin/cmake", f"#!/bin/sh\necho \"$*\" >>{self.dir}/cmake\nmkdir -p build-package\n"
                     "echo >build-package/architectures.txt\n")
        done = subprocess.run([scripts / "package.sh"], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"})
        self.assertEqual((done.returncode, done.stderr), (
            1, "package: build-package has no kernels, because no CUDA compiler was found; see "
            "scripts/setup.sh --cuda\n"))
        self.assertNotIn("--build", (self.dir / "cmake").read_text())


if __name__ == "__main__":
    unittest.main()
