"""scripts/check_requirements.py, run on small pages with one mistake each."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_requirements  # noqa: E402

FILES = {
    "tests/runtime/data/order_test.cpp":
        'TEST_CASE("an epoch has every row", "[order]") {\n  SECTION("once") {}\n}\n'
        'TEST_CASE("a long name that does "\n          "not fit on a line", "[order]") {}\n',
    "tests/cli/test_signals.py":
        "class Signals:\n    def test_a_signal_ends_the_job(self):\n        pass\n",
    "tests/runtime/data/rows_test.cpp": 'TEST_CASE("a row is read") {}\n',
    "tests/runtime/text/rows_test.cpp": "",
    "docs/benchmarks/h200.md": "",
}


class CheckRequirements(unittest.TestCase):
    def findings(self, evidence, state="shown", ids=None, extra=()):
        """Of a page with one row for all promises, or with other rows."""
        rows = [f"| {ids or ', '.join(check_requirements.IDS)} | p | {evidence} | {state} |", *extra]
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**FILES, check_requirements.PAGE: "\n".join(rows)}.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return [finding for _, finding in check_requirements.findings(root)]

    def assert_finding(self, part, *args, **keys):
        found = self.findings(*args, **keys)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_there_are_107_promises(self):
        self.assertEqual(len(check_requirements.IDS), 107)
        self.assertEqual(check_requirements.IDS[-1], "S4-11")

    def test_evidence_that_exists_is_no_finding(self):
        for evidence in ('`order_test.cpp`: "an epoch has every row", "once"',
                         '`order_test.cpp`: "a long name that does not fit on a line"',
                         "`cli/test_signals.py`: `test_a_signal_ends_the_job`",
                         "`cli/test_signals.py`: Signals",
                         "`docs/benchmarks/h200.md`: 3.88 times"):
            with self.subTest(evidence):
                self.assertEqual(self.findings(evidence), [])

    def test_a_test_that_does_not_exist_is_a_finding(self):
        self.assert_finding('has no test "twice"', '`order_test.cpp`: "once", "twice"')
        self.assert_finding("has no test test_b", "`cli/test_signals.py`: Signals, `test_b`")
        self.assert_finding("has no test Stops",
                            "`cli/test_signals.py`: `test_a_signal_ends_the_job`, Stops")

    def test_a_file_that_does_not_exist_is_a_finding(self):
        self.assert_finding("gone_test.cpp does not exist",
                            '`gone_test.cpp`: "once"; `docs/benchmarks/h200.md`')

    def test_a_name_in_several_folders_needs_its_folder(self):
        evidence = '`{}rows_test.cpp`: "a row is read"'
        self.assert_finding("rows_test.cpp is in several folders",
                            evidence.format("") + "; `docs/benchmarks/h200.md`")
        for folder in ("data/", "runtime/data/", "tests/runtime/data/"):
            self.assertEqual(self.findings(evidence.format(folder)), [])

    def test_a_file_of_tests_without_a_name_is_a_finding(self):
        self.assert_finding("name those that show the row",
                            "`cli/test_signals.py`; `docs/benchmarks/h200.md`")

    def test_a_test_without_its_file_is_a_finding(self):
        self.assert_finding("named without its file", '`docs/benchmarks/h200.md`; "once"')

    def test_a_row_without_evidence_is_a_finding_unless_nothing_is_promised(self):
        self.assert_finding("no test, script or page", "words")
        self.assertEqual(self.findings("nothing to test", "no promise"), [])

    def test_placeholders_and_other_states_are_findings(self):
        page = "`docs/benchmarks/h200.md`"
        self.assert_finding("instead of what is open", page, "partly; on GPUs: trainer")
        self.assert_finding("the state begins with", page, "open")

    def test_every_promise_has_exactly_one_row(self):
        page = "`docs/benchmarks/h200.md`"
        self.assert_finding("S4-11 has no row", page, ids=", ".join(check_requirements.IDS[:-1]))
        self.assert_finding("S0-01 is also in line 1", page,
                            extra=[f"| S0-01 | p | {page} | shown |"])
        self.assert_finding("S0-43 is not an id", page, extra=[f"| S0-43 | p | {page} | shown |"])
        self.assert_finding("four columns", page, state="shown | more")

    def test_the_page_of_this_project_has_no_findings(self):
        self.assertEqual(list(check_requirements.findings(ROOT)), [])


if __name__ == "__main__":
    unittest.main()
