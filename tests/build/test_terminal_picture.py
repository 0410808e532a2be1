"""scripts/terminal_picture.py, which makes the pictures of docs/pictures."""

import html
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines_of(*words):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.svg")
        subprocess.run([sys.executable, ROOT / "scripts/terminal_picture.py", out, *words], check=True,
                       capture_output=True, timeout=60)
        text = out.read_text()
    xml.dom.minidom.parseString(text)
    return [html.unescape(re.sub("<[^>]*>", "", line)) for line in re.findall("<text.*</text>", text)], text


class TerminalPicture(unittest.TestCase):
    def test_it_shows_the_prompt_and_the_lines_of_the_command(self):
        lines, _ = lines_of("--show", "hello", "--", "sh", "-c", "echo a; echo 'b <&> c'; exit 3")
        self.assertEqual(lines, ["$ hello", "a", "b <&> c"])

    def test_colours_become_fills_and_overwritten_text_is_left_out(self):
        lines, text = lines_of("--", "printf", r"\033[31mred\033[0m plain\nfirst\rsecond\n")
        self.assertEqual(lines[1:], ["red plain", "second"])
        self.assertIn('<tspan fill="#bf616a">red</tspan><tspan fill="#d8dee9"> plain</tspan>', text)

    def test_long_lines_are_wrapped_and_colours_go_on(self):
        lines, text = lines_of("--columns", "40", "--", "printf", r"a\033[2m%s\033[0m%s\nlast\n", "b" * 50, "c" * 29)
        self.assertEqual(lines[1:], ["a" + 39 * "b", 11 * "b" + 29 * "c", "last"])
        self.assertIn('<tspan fill="#8b94a7">bbbbbbbbbbb</tspan><tspan fill="#d8dee9">ccc', text)

    def test_a_program_that_does_not_exist_makes_no_picture(self):
        with self.assertRaises(subprocess.CalledProcessError):
            lines_of("--", "no-such-program")

    def test_so_many_lines_are_kept(self):
        lines, _ = lines_of("--first", "2", "--last", "1", "--", "sh", "-c", "echo 1; echo 2; echo 3")
        self.assertEqual(lines[1:], ["2"])


if __name__ == "__main__":
    unittest.main()
