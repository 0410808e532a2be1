"""The test run itself: what it reads out of the closing lines of the test frameworks, how it ends
commands, and which files clang-tidy checks."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import run_tests  # noqa: E402
from testing import clang_tidy, results, steps  # noqa: E402
from testing.forked_unittest import ForkedUnittest  # noqa: E402


class ClangTidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file_of_several(self, texts):
        """An entry of compile_commands.json for a file that includes sources with these texts."""
        file = self.folder / "unity" / "a_0.cpp"
        file.parent.mkdir()
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        file.write_text("".join(f'#include "{self.folder / name}"\n' for name in texts))
        return {"directory": str(self.folder), "file": str(file),
                "arguments": ["c++", "-c", str(file)]}

    def test_it_checks_the_launcher_and_rendezvous_and_nothing_else(self):
        for name, wanted in (("launcher/main.cpp", True),
                             ("build/launcher/unity/mgpu_launcher_0.cpp", True),
                             ("build/rendezvous/unity/mgpu_store_3.cpp", True),
                             ("build/launcher/CMakeFiles/mgpu_pch.dir/cmake_pch.hxx.cxx", False),
                             ("build/runtime/text/unity/mgpu_text_0.cpp", False),
                             ("tests/launcher/cli_test.cpp", False)):
            with self.subTest(file=name):
                self.assertEqual(clang_tidy.is_tidied(ROOT / name), wanted)

    def test_sources_in_a_file_of_several_keep_the_checks_of_main_files(self):
        entry = self.file_of_several({
            "using.cpp": "using std::string;\n", "alias.cpp": "  namespace fs = std::filesystem;\n",
            "source.cpp": '#include "a.cpp"\n', "none.cpp": "using namespace std;\nint a;\n"})
        (whole, checks), *parts = clang_tidy.tidy_runs(entry)
        self.assertEqual((whole, checks), (entry, "-bugprone-suspicious-include"))
        self.assertEqual([pathlib.Path(part["arguments"][2]).name for part, _ in parts],
                         ["using.cpp", "alias.cpp", "source.cpp"])
        for _, checks in parts:
            self.assertIn("misc-unused-using-decls", checks)

    def test_clang_tidy_reads_the_commands_that_were_written_for_it(self):
        # With a member that it does not know it took the parent folder's, which name gcc's
        # precompiled headers.
        entry = self.file_of_several({"one.cpp": "#ifndef GIVEN\n#error not this one\n#endif\n"
                                                 "using std::string;\n"})
        (self.folder / "compile_commands.json").write_text(json.dumps([entry]))
        entry = {**entry, "arguments": ["c++", "-DGIVEN", *entry["arguments"][1:]]}
        entries = [run for run, _ in clang_tidy.tidy_runs(entry)]
        self.assertEqual(len(entries), 2)
        clang_tidy.write_database(self.folder / "tidy", entries)
        for one in entries:
            status, output = steps.run(["clang-tidy-19", "-p", self.folder / "tidy", "--quiet",
                                        "--checks=-*,cert-err34-c", one["file"]], 60)
            self.assertNotIn("not this one", output)
            self.assertNotIn("database", output)


class Catch2(unittest.TestCase):
    def counts(self, status, output):
        outcome = results.catch2_outcome(status, output)
        return outcome.passed, outcome.failed

    def test_cases_are_counted_not_assertions(self):
        self.assertEqual(self.counts(0, "All tests passed (12 assertions in 5 test cases)\n"), (5, 0))
        self.assertEqual(self.counts(0, "All tests passed (1 assertion in 1 test case)\n"), (1, 0))

    def test_failed_cases_are_counted(self):
        self.assertEqual(self.counts(2, "test cases:  7 |  5 passed | 2 failed\n"
                                        "assertions: 20 | 18 passed | 2 failed\n"), (5, 2))
        self.assertEqual(self.counts(1, "test cases: 1 | 1 failed\nassertions: 1 | 1 failed\n"), (0, 1))

    def test_a_case_that_should_fail_and_does_has_passed(self):
        self.assertEqual(self.counts(0, "test cases: 3 | 2 passed | 1 failed as expected\n"), (3, 0))

    def test_a_program_that_dies_or_tests_nothing_has_failed(self):
        self.assertEqual(self.counts(-11, ""), (0, 1))
        self.assertEqual(self.counts(0, ""), (0, 1))
        self.assertEqual(self.counts(0, "No tests ran\n"), (0, 1))
        self.assertEqual(self.counts(66, "All tests passed (3 assertions in 3 test cases)\n"), (3, 1))


class Unittest(unittest.TestCase):
    def outcome_of(self, source):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "test_it.py")
            path.write_text("import unittest\n" + textwrap.dedent(source))
            done = subprocess.run([sys.executable, "-B", "-m", "unittest", "discover", "-s", folder],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        outcome = results.unittest_outcome(done.returncode, done.stdout)
        return outcome.passed, outcome.failed

    def test_passed_failed_erring_and_skipped_tests_are_told_apart(self):
        self.assertEqual(self.outcome_of("""
            class T(unittest.TestCase):
                def test_a(self): pass
                def test_b(self): self.fail()
                def test_c(self): 1 / 0
                def test_d(self): self.skipTest("no GPU")
                def test_e(self): pass
                @unittest.expectedFailure
                def test_f(self): self.fail()
            """), (3, 2))

    def test_only_skipped_tests_are_no_failure(self):
        self.assertEqual(self.outcome_of("""
            class T(unittest.TestCase):
                def test_a(self): self.skipTest("no GPU")
            """), (0, 0))

    def test_a_file_without_tests_or_with_a_syntax_error_has_failed(self):
        self.assertEqual(self.outcome_of(""), (0, 1))
        self.assertEqual(self.outcome_of("def"), (0, 1))


class SecondTry(unittest.TestCase):
    OUTPUT = ("FAIL: test_a (test_loss.Cut.test_a) (number=3)\n---\n"
              "ERROR: test_b (test_loss.Cut.test_b)\nFAIL: test_a (test_loss.Cut.test_a)\n")

    def test_each_failed_test_is_named_once(self):
        self.assertEqual(results.failed_tests(self.OUTPUT),
                         ["test_loss.Cut.test_a", "test_loss.Cut.test_b"])

    def test_what_fails_twice_has_failed(self):
        first = steps.Outcome(4, 1, "FAIL: test_x (nowhere.Nothing.test_x)\n")
        twice = run_tests.with_second_try("nodes", lambda: first, sys.executable)
        self.assertEqual((twice.passed, twice.failed), (4, 1))

    def test_what_passes_alone_has_passed(self):
        name = "test_run_tests.Catch2.test_cases_are_counted_not_assertions"
        first = steps.Outcome(4, 1, f"FAIL: test_cases ({name})\n")
        again = run_tests.with_second_try("build", lambda: first, sys.executable)
        self.assertEqual((again.passed, again.failed), (5, 0))

    def second_run(self, *outcomes):
        left = list(outcomes)
        outcome = run_tests.with_second_run("test_x", lambda: left.pop(0))
        return outcome.passed, outcome.failed, len(left)

    def test_a_program_runs_again_after_few_failures(self):
        failed, passed = steps.Outcome(4, 1, "late\n"), steps.Outcome(5, 0)
        self.assertEqual(self.second_run(failed, passed), (5, 0, 0))
        self.assertEqual(self.second_run(failed, failed), (4, 1, 0))
        self.assertEqual(self.second_run(passed, failed), (5, 0, 1))

    def test_many_failures_and_reports_of_sanitizers_count_at_once(self):
        passed = steps.Outcome(5, 0)
        self.assertEqual(self.second_run(steps.Outcome(1, 4, ""), passed), (1, 4, 1))
        for line in ("WARNING: ThreadSanitizer: data race (pid=7)\n",
                     "ERROR: AddressSanitizer: heap-use-after-free\n",
                     "a.cpp:3:1: runtime error: shift exponent 64 is too large\n"):
            with self.subTest(line):
                self.assertEqual(self.second_run(steps.Outcome(4, 1, line), passed), (4, 1, 1))


class Run(unittest.TestCase):
    def test_the_status_and_all_output_are_given(self):
        self.assertEqual(steps.run(["sh", "-c", "echo a; echo b >&2; exit 3"], 30), (3, "a\nb\n"))

    def test_a_command_that_takes_too_long_is_killed_with_its_children(self):
        start = time.monotonic()
        status, output = steps.run(["sh", "-c", "echo before; sleep 60 & wait"], 1)
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(status, -9)
        self.assertEqual(output, "before\n\nkilled: it took longer than 1 s\n")

    def test_a_process_left_behind_does_not_hold_the_run_up(self):
        start = time.monotonic()
        self.assertEqual(steps.run(["sh", "-c", "sleep 20 & echo done"], 60), (0, "done\n"))
        self.assertLess(time.monotonic() - start, 15)


class Forked(unittest.TestCase):
    """Runs of unittest in forks of a process that has imported PyTorch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.forked = ForkedUnittest()
        self.addCleanup(self.forked.close)

    def run_file(self, source, limit=60, **environment):
        name = f"test_{len(list(self.folder.iterdir()))}.py"
        (self.folder / name).write_text("import os, sys, time, unittest\n"
                                        "class T(unittest.TestCase):\n"
                                        + textwrap.indent(textwrap.dedent(source), "    "))
        return self.forked.run(sys.executable, ["discover", "-v", "-s", self.folder, "-p", name],
                               limit, {"PYTHONPATH": "/nowhere", **environment})

    def test_the_status_and_the_output_are_those_of_the_run(self):
        status, output = self.run_file("def test_a(self): print('out'); os.write(2, b'err\\n')")
        self.assertEqual(status, 0, output)
        self.assertIn("out\n", output)
        self.assertIn("err\n", output)
        self.assertEqual(results.unittest_outcome(status, output).passed, 1)
        status, output = self.run_file("def test_b(self): self.fail('this')")
        self.assertEqual(results.unittest_outcome(status, output).failed, 1)
        self.assertIn("AssertionError: this", output)

    def test_each_run_has_its_own_session_modules_and_environment(self):
        source = """
            def test_a(self):
                self.assertEqual(os.getsid(0), os.getpid())
                self.assertEqual(os.environ["WANTED"], "yes")
                self.assertNotIn("TQDM_DISABLE", os.environ)
                self.assertIn("/nowhere", sys.path)
                self.assertNotIn("left_by_another", sys.modules)
                sys.modules["left_by_another"] = sys
            """
        for _ in range(2):
            status, output = self.run_file(source, WANTED="yes")
            self.assertEqual(status, 0, output)

    def test_a_run_that_takes_too_long_is_killed_and_the_next_one_is_not(self):
        status, output = self.run_file("def test_a(self): time.sleep(60)", limit=1)
        self.assertEqual(status, -9)
        self.assertIn("killed: it took longer than 1 s", output)
        self.assertEqual(self.run_file("def test_a(self): pass")[0], 0)

    def test_the_cpu_time_of_a_run_is_counted(self):
        before = steps.SPENT.cpu
        self.run_file("def test_a(self):\n    while time.process_time() < 0.5: pass")
        self.assertGreater(steps.SPENT.cpu - before, 0.3)

    def test_a_run_beside_others_has_its_own_output(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            runs = list(pool.map(lambda number: self.forked.run(
                sys.executable, ["-v", f"no_{number}"], 60, {}), range(8)))
        for number, (status, output) in enumerate(runs):
            self.assertEqual(status, 1)
            self.assertIn(f"No module named 'no_{number}'", output)


if __name__ == "__main__":
    unittest.main()
