"""scripts/check_binary.py, run on small programs that break one rule each."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_binary  # noqa: E402


class CheckBinary(unittest.TestCase):
    def link(self, source, *options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name, "program")
        subprocess.run(["g++", "-x", "c++", "-", "-o", program, *options], input=source, text=True,
                       check=True)
        return str(program)

    def test_a_plain_program_has_no_findings(self):
        self.assertEqual(check_binary.findings(self.link("int main() {}", "-static-libgcc",
                                                         "-static-libstdc++")), [])

    def test_a_shared_library_is_named(self):
        source = "#include <iostream>\nint main() { std::cout << 1; }"
        self.assertIn("needs libstdc++.so.6; link it statically",
                      check_binary.findings(self.link(source)))

    def test_a_newer_symbol_is_named_with_its_version(self):
        source = 'extern "C" int pidfd_open(int, unsigned);\nint main() { pidfd_open(1, 0); }'
        found = check_binary.findings(self.link(source, "-static-libgcc", "-static-libstdc++"))
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], "^imports pidfd_open@GLIBC_2.36, newer than GLIBC_2.34")

    def test_2_4_is_older_than_2_34(self):
        source = "#include <stdio.h>\nint main() { char line[9]; return !fgets(line, 9, stdin); }"
        program = self.link(source, "-fstack-protector-all")
        self.assertIn("__stack_chk_fail@GLIBC_2.4", check_binary.read_elf(program, "--dyn-syms"))
        self.assertEqual(list(check_binary.version_findings(program, "2.34")), [])

    def test_a_runpath_is_a_finding(self):
        program = self.link("int main() {}", "-Wl,-rpath,/opt/lib", "-Wl,--enable-new-dtags")
        self.assertIn("has a RUNPATH (/opt/lib); it must not depend on a folder",
                      check_binary.findings(program))

    def test_size_is_that_of_the_stripped_file(self):
        program = self.link("char big[3 << 20] = {1}; int main() { return big[7]; }", "-g")
        self.assertEqual(list(check_binary.size_findings(program, 4)), [])
        self.assertRegex("".join(check_binary.size_findings(program, 2)),
                         r"^is 3\.0\d MiB without symbols, more than 2 MiB$")

    def test_the_readme_states_the_size_limit_that_is_enforced(self):
        text = check_binary.README.read_text(encoding="utf-8")
        self.assertEqual(list(check_binary.readme_findings(text)), [])

    def test_a_readme_with_another_size_or_none_is_a_finding(self):
        self.assertEqual(
            list(check_binary.readme_findings("one file, under 2 MiB when stripped", 4.0)),
            ["states under 2 MiB, but scripts/check_binary.py allows 4 MiB"])
        self.assertEqual(list(check_binary.readme_findings("one file", 4.0)),
                         ['does not state "under 4 MiB when stripped"'])


if __name__ == "__main__":
    unittest.main()
