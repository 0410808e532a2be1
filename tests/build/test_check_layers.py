"""scripts/check_layers.py, run on small trees that break one rule each."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402


class CheckLayers(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.findings(root)

    def including(self, name, header, others=()):
        return self.findings({**{other: "" for other in others}, name: f"\n#include {header}\n"})

    def test_includes_that_the_design_allows_are_no_findings(self):
        for name, header in [("launcher/plan/plan.cpp", "rendezvous/contract.hpp"),
                             ("launcher/status/page.cpp", "launcher/plan/plan.hpp"),
                             ("runtime/train/sft.cpp", "rendezvous/store/client.hpp"),
                             ("rendezvous/store/server.cpp", "rendezvous/base/net.hpp"),
                             ("tests/launcher/plan_test.cpp", "launcher/plan/plan.hpp")]:
            with self.subTest(name):
                self.assertEqual(self.including(name, f'"{header}"', [header]), [])

    def test_includes_against_the_design_are_findings(self):
        for name, header in [("rendezvous/join.cpp", "launcher/plan/plan.hpp"),
                             ("rendezvous/join.cpp", "runtime/comm/comm.hpp"),
                             ("launcher/plan/plan.cpp", "runtime/comm/comm.hpp"),
                             ("runtime/comm/comm.cpp", "launcher/plan/plan.hpp"),
                             ("runtime/comm/comm.cpp", "rendezvous/store/server.hpp"),
                             ("rendezvous/base/net.cpp", "rendezvous/contract.hpp"),
                             ("rendezvous/store/server.cpp", "rendezvous/join.hpp"),
                             ("launcher/plan/plan.cpp", "tests/support/temp_dir.hpp")]:
            with self.subTest(f"{name} {header}"):
                folder = name.rpartition("/")[0]
                self.assertEqual(self.including(name, f'"{header}"', [header]),
                                 [f"{name}:2: {folder}/ may not include {header}"])

    def test_a_path_that_does_not_start_at_the_root_is_a_finding(self):
        found = self.including("launcher/plan/plan.cpp", '"plan.hpp"', ["launcher/plan/plan.hpp"])
        self.assertEqual(len(found), 1)
        self.assertIn("write paths from the root", found[0])

    def test_a_package_may_be_used_by_the_listed_files_only(self):
        for name, header, allowed in [("launcher/options/cli.cpp", "CLI/CLI.hpp", True),
                                      ("launcher/main.cpp", "CLI/CLI.hpp", False),
                                      ("launcher/event_loop/event_loop.hpp", "boost/asio.hpp", True),
                                      ("launcher/lifecycle/supervisor.cpp", "boost/asio.hpp", False),
                                      ("rendezvous/yaml/yaml.cpp", "yaml-cpp/yaml.h", True),
                                      ("launcher/options/launch_file.cpp", "yaml-cpp/yaml.h", False),
                                      ("runtime/comm/comm.cpp", "ATen/core/Tensor.h", True),
                                      ("launcher/plan/plan.cpp", "ATen/core/Tensor.h", False),
                                      ("rendezvous/join.cpp", "torch/torch.h", False),
                                      ("rendezvous/base/log.cpp", "fmt/format.h", True),
                                      ("rendezvous/base/net.cpp", "sys/socket.h", True),
                                      ("rendezvous/base/net.cpp", "nlohmann/json.hpp", False),
                                      ("launcher/plan/plan.cpp", "catch2/catch.hpp", False),
                                      ("launcher/plan/plan.cpp", "absl/strings/str_cat.h", False),
                                      ("tests/launcher/a_test.cpp", "nlohmann/json.hpp", True)]:
            with self.subTest(f"{name} {header}"):
                self.assertEqual(self.including(name, f"<{header}>") == [], allowed)

    def test_processes_are_started_in_the_listed_files_only(self):
        call = "int f() { return fork(); }\n"
        self.assertEqual(self.findings({"rendezvous/processes/spawn.cpp": call}), [])
        self.assertEqual(self.findings({"tests/support/shell.cpp": call}), [])
        self.assertEqual(
            self.findings({"launcher/plan/plan.cpp": call}),
            ["launcher/plan/plan.cpp:1: fork: only rendezvous/processes/spawn.cpp "
             "runtime/rewards/sandbox/enter.cpp runtime/commands/start_worker.cpp start processes"])
        for call in ["posix_spawn(&pid, p)", "::execve(a, b, c)", "syscall(SYS_clone3, &a, n)",
                     "popen(c, m)", "std::system(c)"]:
            with self.subTest(call):
                self.assertEqual(len(self.findings({"launcher/plan/plan.cpp": call})), 1)

    def test_calls_in_comments_and_strings_are_ignored(self):
        text = ('// fork() here\n/* and\n   execve() */ auto s = "system(\\"x\\")";\n'
                'auto r = R"x(popen("a"))x"; pitchfork(s); fork_count (1); // "\n'
                "char q = '\"'; // fork(\n")
        self.assertEqual(self.findings({"launcher/plan/plan.cpp": text}), [])

    def test_a_digit_separator_does_not_open_a_character_literal(self):
        self.assertEqual(len(self.findings({"launcher/plan/plan.cpp": "f(1'000, fork(), 2'000);\n"})), 1)

    def test_an_include_in_a_comment_is_ignored(self):
        self.assertEqual(self.findings({"launcher/plan/plan.cpp": "// \n/*\n#include <boost/x>\n*/"}), [])

    def test_the_top_level_is_fixed(self):
        found = self.findings({"utils/a.txt": "", "notes.md": "", ".ci/run": "", "docs/a.md": "",
                               "README.md": ""})
        self.assertEqual([line.partition(":")[0] for line in found], ["notes.md", "utils/a.txt"])

    def test_a_file_longer_than_600_lines_is_a_finding(self):
        self.assertEqual(self.findings({"launcher/a.cpp": "\n" * 600}), [])
        found = self.findings({"launcher/a.cpp": "\n" * 601})
        self.assertEqual(found, ["launcher/a.cpp:601: longer than 600 lines; "
                                 "split it by responsibility"])


if __name__ == "__main__":
    unittest.main()
