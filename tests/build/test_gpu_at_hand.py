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


class Setup(GpuAtHand):
    def set_up(self, *options, smi="echo 'GPU 0: made up'"):
        """What setup.sh has pip install on a machine that has torch and no CUDA compiler."""
        scripts = self.dir / "tree" / "scripts"
        scripts.mkdir(parents=True, exist_ok=True)
        for name in ("setup.sh", "requirements.txt", "requirements-cuda.txt"):
            shutil.copy(ROOT / "scripts" / name, scripts)
        self.program("tree/scripts/torch_python.sh", "#!/bin/sh\necho python3\n")
        self.program("tree/.deps/venv/bin/pip", f"#!/bin/sh\necho \"$*\" >>{self.dir}/installed\n")
        self.program("bin/nvidia-smi", f"#!/bin/sh\n{smi}\n")
        for name in ("bash", "env", "sed", "dirname", "mktemp", "rm", "grep", "cat"):
            link = self.dir / "bin" / name
            if not link.exists():
                link.symlink_to(shutil.which(name))
        done = subprocess.run([scripts / "setup.sh", *options], capture_output=True, text=True,
                              env={"PATH": f"{self.dir}/bin", "MGPU_NO_INSTALL": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        installed = self.dir / "installed"
        return installed.read_text() if installed.exists() else ""

    def test_the_cuda_compiler_is_installed_where_there_is_a_gpu_and_none(self):
        self.assertIn("requirements-cuda.txt", self.set_up("--torch"))

    def test_no_compiler_is_installed_without_a_gpu(self):
        self.assertEqual(self.set_up("--torch", smi="exit 9"), "")

    def test_a_compiler_on_path_is_used(self):
        self.program("bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        self.assertEqual(self.set_up("--torch"), "")

    def test_another_version_of_torch_gets_no_compiler_of_cuda_13(self):
        self.assertEqual(self.set_up("--torch=2.10.0"), "")


if __name__ == "__main__":
    unittest.main()
