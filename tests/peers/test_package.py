"""A release of the programs of this build: installed into a fresh environment in another folder, used
without the source tree, and removed again."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")).resolve()
PYTHON = os.environ.get("MGPU_TORCH_PYTHON") or sys.executable
LIMIT = 120
STEPS = ["--set", "max_steps=2", "--set", "logging_steps=1", "--set", "eval_strategy=no"]
ROWS = [{"prompt": "1+1=", "completion": "2"}, {"prompt": "1+2=", "completion": "3"}] * 8
PLUGIN = BUILD / "libexec/mgpu/mgpu-columnar.so"
PACKAGED_FOR = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}


def run(*words, **options):
    variables = dict(CUDA_VISIBLE_DEVICES="", PYTHONPATH="", LIBTORCH_ROOT="")
    env = {key: value for key, value in environment(**variables).items()
           if value or key == "CUDA_VISIBLE_DEVICES"}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=LIMIT, **{"env": env, **options})


def package_folder(name):
    found = run(PYTHON, "-c", f"import importlib.util as u; s = u.find_spec('{name}'); "
                "print(s.submodule_search_locations[0] if s else '')", cwd="/")
    return pathlib.Path(found.stdout.strip() or "/nope")


def torch_folder():
    return package_folder("torch")


def cuobjdump():
    """NVIDIA's program, of the toolkit or of the triton that pip installs with torch."""
    beside = torch_folder().parent / "triton/backends/nvidia/bin/cuobjdump"
    return shutil.which("cuobjdump") or (str(beside) if beside.exists() else None)


def code_in(worker):
    """The architectures for which a program has code of our kernels."""
    listed = run(cuobjdump(), "--list-elf", worker)
    return set(re.findall(r"\.(sm_\d+)a?\.cubin", listed.stdout))


@unittest.skipUnless((BUILD / "libexec/mgpu/mgpu-train").exists(), "mgpu-train is not built")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-package-")
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        cls.dist = cls.dir / "dist"
        made = run(ROOT / "scripts/package.sh", "--build", BUILD, "--dist", cls.dist,
                   cwd="/")
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)
        cls.wheels = sorted(cls.dist.glob("*.whl"))

    def make_environment(self, name):
        folder = self.dir / name
        self.assertEqual(run(PYTHON, "-m", "venv", "--without-pip", folder).returncode, 0)
        site, = folder.glob("lib/python3*/site-packages")
        return folder, site

    def pip(self, folder, *words):
        done = run(PYTHON, "-m", "pip", "--disable-pip-version-check", "--python",
                   folder / "bin/python3", *words, cwd="/")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def files_in(self, folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*")
                if "__pycache__" not in path.parts}

    def assert_programs_work(self, bin_folder, folder):
        """From the version to a trained model, in a folder that has nothing of the source tree."""
        self.assertRegex(run(bin_folder / "mgpu-run", "--version").stdout, r"^mgpu-run \d")
        folder.mkdir()
        self.assertIn("wrote quickstart", run(bin_folder / "mgpu-train", "quickstart",
                                              cwd=folder).stdout)
        done = run(bin_folder / "mgpu-run", "--nproc", 1, "quickstart.yaml", *STEPS,
                   cwd=folder / "quickstart")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        made = run(bin_folder / "mgpu-train", "generate", "--model", "output/quickstart", "--prompt",
                   "1+", "--max-new-tokens", 2, cwd=folder / "quickstart")
        self.assertEqual(made.returncode, 0, made.stderr)

    def test_install_quickstart_and_uninstall(self):
        folder, site = self.make_environment("environment")
        before = self.files_in(folder)
        (site / "torch_elsewhere.pth").write_text(f"{torch_folder().parent}\n")
        self.pip(folder, "install", "--no-index", "--no-deps", *self.wheels)
        self.assert_programs_work(folder / "bin", self.dir / "work")
        self.pip(folder, "uninstall", "-y", "mgpu-run", "mgpu-train")
        (site / "torch_elsewhere.pth").unlink()
        self.assertEqual(self.files_in(folder), before)

    def make_recipe(self, name):
        """A recipe with rows in Parquet, in a folder of its own with the quickstart's tokenizer."""
        folder = self.dir / name
        self.assertEqual(run(BUILD / "bin/mgpu-train", "quickstart", folder).returncode, 0)
        made = run(PYTHON, "-c", "import json, sys, pyarrow, pyarrow.parquet as p; "
                   "p.write_table(pyarrow.Table.from_pylist(json.loads(sys.argv[1])), sys.argv[2])",
                   json.dumps(ROWS), folder / "rows.parquet")
        self.assertEqual(made.returncode, 0, made.stderr)
        return folder

    def assert_parquet_is_read(self, program, folder, **options):
        """By the front end, and by the worker, which trains."""
        set_rows = ["--set", "dataset_name=rows.parquet", *STEPS]
        done = run(program, "data", "quickstart.yaml", *set_rows, cwd=folder, **options)
        self.assertIn("16 examples", done.stdout, done.stderr)
        done = run(program, "quickstart.yaml", "--single", *set_rows, "--set",
                   f"dataset_prepared_path={folder}/cache", cwd=folder, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(PLUGIN.exists() and package_folder("pyarrow").exists(),
                         "needs the plug-in and pyarrow")
    def test_parquet_is_read_with_the_pyarrow_beside_the_worker(self):
        folder, site = self.make_environment("columnar")
        for name in ("torch", "nvidia"):
            (site / name).symlink_to(torch_folder().parent / name)
        self.pip(folder, "install", "--no-index", "--no-deps", *self.wheels)
        recipes = self.make_recipe("columnar-recipes")
        program = folder / "bin/mgpu-train"
        refused = f"run: {folder}/bin/python3 -m pip install pyarrow=="
        for words in (["data"], []):
            done = run(program, *words, "quickstart.yaml", "--set", "dataset_name=rows.parquet", *STEPS,
                       *([] if words else ["--single"]), cwd=recipes)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(refused, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        (site / "pyarrow").symlink_to(package_folder("pyarrow"))
        self.assert_parquet_is_read(program, recipes)

    def test_torch_beside_the_worker_needs_no_search(self):
        folder, site = self.make_environment("beside")
        for name in ("torch", "nvidia"):
            (site / name).symlink_to(torch_folder().parent / name)
        self.pip(folder, "install", "--no-index", "--no-deps", *self.wheels)
        (folder / "bin/python3").unlink()
        done = run(folder / "bin/mgpu-train", "version", "--worker")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_torch_without_cuda_trains_on_the_cpu(self):
        """A copy of torch without the libraries that a build without CUDA lacks. Its libtorch_cpu
        needs CUPTI, which is given to it from outside."""
        folder, site = self.make_environment("cpu")
        torch = torch_folder()
        (site / "torch/lib").mkdir(parents=True)
        for path in (torch / "lib").iterdir():
            if not re.search("torch_cuda|c10_cuda|nvshmem", path.name):
                (site / "torch/lib" / path.name).symlink_to(path)
        (site / "torch/version.py").write_text("__version__ = '2.11.0+cpu'\ncuda = None\n")
        others = self.dir / "others"
        others.mkdir()
        for path in torch.parent.glob("nvidia/*/lib/libcupti.so*"):
            (others / path.name).symlink_to(path)
        self.pip(folder, "install", "--no-index", "--no-deps", *self.wheels)
        recipes = self.dir / "recipes"
        self.assertEqual(run(folder / "bin/mgpu-train", "quickstart", recipes).returncode, 0)
        done = run(folder / "bin/mgpu-train", "quickstart.yaml", *STEPS, cwd=recipes,
                   env=environment(LD_LIBRARY_PATH=str(others), CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((recipes / "output/quickstart/model.safetensors").exists())

    def test_the_tarball_installs_and_removes_itself(self):
        archive, = self.dist.glob("*.tar.gz")
        run("tar", "-xzf", archive, "-C", self.dir)
        script = self.dir / archive.name.removesuffix(".tar.gz") / "install.sh"
        prefix = self.dir / "prefix"
        done = run(script, "--prefix", prefix)
        self.assertEqual(done.returncode, 0, done.stderr)
        version = run(prefix / "bin/mgpu-train", "version", "--worker", env=environment(
            LIBTORCH_ROOT=str(torch_folder()), CUDA_VISIBLE_DEVICES=""))
        self.assertRegex(version.stdout, r"^mgpu-train \d", version.stderr)
        if PLUGIN.exists() and package_folder("pyarrow").parent == torch_folder().parent:
            self.assert_parquet_is_read(prefix / "bin/mgpu-train", self.make_recipe("tar-recipes"),
                                        env=environment(LIBTORCH_ROOT=str(torch_folder()),
                                                        CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(run(script, "--prefix", prefix, "--uninstall").returncode, 0)
        self.assertEqual(self.files_in(prefix), {"bin"})
        self.assertEqual(run(script, "--prefx", prefix).returncode, 2)

    def test_cmake_installs_programs_that_run(self):
        prefix = self.dir / "installed"
        done = run("cmake", "--install", BUILD, "--prefix", prefix)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(run(prefix / "bin/mgpu-run", "--version").returncode, 0)
        done = run(prefix / "bin/mgpu-train", "version", "--worker")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        if PLUGIN.exists() and package_folder("pyarrow").exists():
            self.assert_parquet_is_read(prefix / "bin/mgpu-train", self.make_recipe("cmake-recipes"))
        for path in (BUILD / "install_manifest.txt").read_text().splitlines():
            pathlib.Path(path).unlink()
        self.assertEqual(self.files_in(prefix), {"bin", "libexec", "libexec/mgpu"})

    @unittest.skipUnless(run("gcc", "-dumpversion").stdout.startswith("12"),
                         "releases are built with gcc 12")
    def test_both_wheels_are_for_glibc_2_34_and_the_libraries_of_gcc_11(self):
        self.assertEqual([path.name.split("-")[-1] for path in self.wheels],
                         ["manylinux_2_34_x86_64.whl"] * 2)

    def test_a_release_lists_the_checksum_of_every_file(self):
        done = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.dist)
        self.assertEqual(done.returncode, 0, done.stdout)
        names = {line.split()[1] for line in (self.dist / "SHA256SUMS").read_text().splitlines()}
        self.assertEqual(names | {"SHA256SUMS"}, {path.name for path in self.dist.iterdir()})

    def test_a_second_packaging_has_the_same_bytes(self):
        again = self.dir / "again"
        self.assertEqual(run(ROOT / "scripts/package.sh", "--build", BUILD, "--dist", again).returncode, 0)
        for path in self.dist.iterdir():
            self.assertEqual(path.read_bytes(), (again / path.name).read_bytes(), path.name)

    def test_the_trainer_has_the_licences_of_the_headers_that_it_contains(self):
        run_wheel, train_wheel = self.wheels
        for wheel, expected in ((train_wheel, True), (run_wheel, False)):
            target = self.dir / wheel.stem
            shutil.unpack_archive(wheel, target, "zip")
            notices, = target.glob("*.dist-info/licenses/THIRD-PARTY")
            text = notices.read_text()
            self.assertIn("\nzlib1g-dev\n", text)
            self.assertEqual("\ntorch: LICENSE\n" in text, expected)
            self.assertEqual("\npyarrow: LICENSE.txt\n" in text, expected and PLUGIN.exists())

    def test_the_image_has_the_pyarrow_of_the_plugin(self):
        pinned, = re.findall("^pyarrow==.*$", (ROOT / "scripts/requirements.txt").read_text(), re.M)
        self.assertIn(f" {pinned} ", (self.dist / "Containerfile").read_text())

    @unittest.skipUnless(cuobjdump(), "needs cuobjdump")
    def test_the_worker_has_code_for_the_gpus_that_its_build_names(self):
        named = (BUILD / "architectures.txt").read_text().split()
        expected = {f"sm_{name.split('-')[0]}" for name in named if not name.endswith("virtual")}
        self.assertEqual(code_in(BUILD / "libexec/mgpu/mgpu-train"), expected)

    @unittest.skipUnless(cuobjdump() and list((ROOT / "dist").glob("mgpu_train-*.whl")),
                         "needs cuobjdump and a wheel in dist/")
    def test_the_wheel_in_dist_has_code_for_all_gpus_that_a_release_supports(self):
        wheel, = (ROOT / "dist").glob("mgpu_train-*.whl")
        target = self.dir / "wheel"
        shutil.unpack_archive(wheel, target, "zip")
        self.assertEqual(code_in(target / "mgpu_train/mgpu-train"), PACKAGED_FOR)
        about = json.loads((target / "mgpu_train/build.json").read_text())
        self.assertEqual({f"sm_{one.split('-')[0]}" for one in about["architectures"]}, PACKAGED_FOR)


if __name__ == "__main__":
    unittest.main()
