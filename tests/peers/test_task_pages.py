"""What docs/tasks and docs/examples show works: recipes pass `mgpu-train check`, commands are accepted,
rewards give the numbers that the page states, and every file that a page names exists."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")).resolve() / "bin" / "mgpu-train"
LAUNCHER = pathlib.Path(os.environ.get("MGPU_RUN", PROGRAM.parent / "mgpu-run")).resolve()
LIMIT = 60
PAGES = sorted((ROOT / "docs" / "tasks").glob("*.md"))
CHAT = {"messages": [{"role": "user", "content": "Who wrote Faust?"},
                     {"role": "assistant", "content": "Goethe."}]}
QUESTION = {"question": "What is 70 + 2?", "answer": "70 + 2 = 72\n#### 72"}
# Of commands that are right, in a folder without models.
LACKS = ("is neither a local folder nor in the cache", "already exists; give another name")


def blocks(page):
    """The indented blocks of a page."""
    for found in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page.read_text(), flags=re.M):
        yield textwrap.dedent(found).strip("\n") + "\n"


def recipes_of(page):
    for block in blocks(page):
        lines = [line for line in block.splitlines() if not line.startswith("mgpu-")]
        if any(line.startswith("model_name_or_path:") for line in lines):
            yield "\n".join(lines) + "\n"


def code_of(page):
    """The lines of blocks, and what stands in backticks."""
    for block in blocks(page):
        yield from (line.removeprefix("$ ") for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", page.read_text())


def commands_of(pages):
    """The command lines with mgpu-run and mgpu-train that a reader can type, each once."""
    lines = {tuple(shlex.split(text, comments=True)): page.name for page in pages for text in code_of(page)
             if re.match(r"mgpu-(run|train) ", text)}
    # Two words of mgpu-train are the name of a command in a sentence.
    return {words: page for words, page in lines.items() if len(words) > 2 or words[0] == "mgpu-run"}


def cells_of_counted_commands():
    """Per task of the table the cells: (commands, files) as counted, and as they stand there."""
    page = ROOT / "docs" / "tasks" / "README.md"
    text = page.read_text().split("## Commands, counted")[1]
    head, _, *rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    for task, *cells in rows:
        for program, cell in zip(head[1:], cells, strict=True):
            if cell == "none" and program != "mgpu":
                continue
            commands, files, text = re.fullmatch(r"\*\*(\d+) \+ (\d+)\*\*: (.*)", cell).groups()
            text, _, names = text.partition("; files: ")
            found = len(re.findall(r"`[^`]+`", text)), len(names.split(", ") if names else [])
            yield f"{task}, {program}", (int(commands), int(files)), found


@unittest.skipUnless(PROGRAM.exists(), "mgpu-train is not built")
class TaskPages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "docs" / "examples", self.dir / "docs" / "examples")
        (self.dir / "data").mkdir()
        self.rows("data/train.jsonl", CHAT | {"prompt": "1+1=", "solution": "2"})
        self.rows("data/gsm8k.jsonl", QUESTION)

    def rows(self, name, *rows):
        (self.dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run_program(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], cwd=self.dir,
                              env=environment(HF_HUB_OFFLINE="1", HF_HOME=str(self.dir / "hub")),
                              capture_output=True, text=True, timeout=LIMIT)

    def assert_passes_check(self, recipe, ranks):
        done = self.run_program("check", recipe, "--gpus", ranks)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_recipe_of_the_pages_passes_check(self):
        count = 0
        for page in PAGES:
            for text in recipes_of(page):
                count += 1
                with self.subTest(page=page.name, recipe=text):
                    if "my_rewards" in text:
                        self.write_reward()
                    (self.dir / "train.yaml").write_text(text)
                    self.assert_passes_check("train.yaml", 4)
        self.assertGreaterEqual(count, 3)

    def test_the_examples_pass_check_with_the_ranks_of_their_table(self):
        for path in (ROOT / "docs" / "examples").glob("*.yaml"):
            for name in re.findall(r"data/\w+\.jsonl", path.read_text()):
                self.rows(name, CHAT | QUESTION | {"problem": "1+1=", "solution": "2"})
        page = (ROOT / "docs" / "examples" / "README.md").read_text()
        rows = re.findall(r"^\| (\[.*) \|[^|]*\| (\d+) \|$", page, flags=re.M)
        checked = set()
        for files, ranks in rows:
            for name in re.findall(r"\((\w+\.yaml)\)", files):
                if name not in ("jobset.yaml", "zero2_opt.yaml"):  # of Kubernetes and of accelerate
                    with self.subTest(name=name):
                        checked.add(name)
                        self.assert_passes_check(f"docs/examples/{name}", int(ranks))
        there = {path.name for path in (ROOT / "docs" / "examples").glob("*.yaml")}
        self.assertEqual(there - checked, {"jobset.yaml", "zero2_opt.yaml"})

    def new_folder(self):
        """A folder with what the commands of the pages name, except models."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        for name in ("data", "docs"):
            (folder / name).symlink_to(self.dir / name)
        (folder / "train.yaml").write_text("model_name_or_path: model\ndataset_name: data/train.jsonl\n")
        (folder / "hosts").write_text("node1 slots=8\nnode2 slots=8\n")
        (folder / "token").write_text(32 * "ab")
        (folder / "token").chmod(0o600)
        (folder / "my_rewards.py").write_text("def short_and_right(completions, **_): return [0.0]\n")
        self.rows(folder / "rows.jsonl", {"prompt": "1", "completion": "2", "solution": "2"})
        return folder

    def status_of(self, words):
        """The exit status and the messages; mgpu-run only prints what it would start. Without models
        most commands of mgpu-train fail, but not because of the command line."""
        program, *rest = words
        if program == "mgpu-run" and rest[0] not in ("status", "doctor", "devices"):
            rest.insert(0, "--dry-run")
        done = subprocess.run([LAUNCHER if program == "mgpu-run" else PROGRAM, *rest], cwd=self.new_folder(),
                              env=environment(HF_HUB_OFFLINE="1", HF_HOME=str(self.dir / "hub"),
                                              CUDA_VISIBLE_DEVICES=""),
                              capture_output=True, text=True, timeout=LIMIT)
        return done.returncode, done.stderr

    def test_every_command_of_the_pages_is_accepted(self):
        commands = commands_of(PAGES)
        self.assertGreaterEqual(len(commands), 25)
        for words, page in commands.items():
            with self.subTest(page=page, command=shlex.join(words)):
                status, messages = self.status_of(words)
                starts_ranks = words[0] == "mgpu-run" and words[1] not in ("status", "doctor", "devices")
                lacks = status == 1 or any(part in messages for part in LACKS)
                self.assertTrue(status == 0 or lacks and not starts_ranks, messages)
        for wrong in ("mgpu-train merge --modle a --adapter b --output c", "mgpu-train dta train.yaml",
                      "mgpu-run --nprocs 4 train.yaml"):
            self.assertEqual(self.status_of(wrong.split())[0], 2, wrong)

    def test_the_counts_of_commands_and_files_are_those_of_the_cells(self):
        cells = list(cells_of_counted_commands())
        self.assertGreaterEqual(len(cells), 40)
        for name, counted, found in cells:
            self.assertEqual(counted, found, name)

    def test_the_rewards_of_gsm8k_compare_the_boxed_number(self):
        cases = [(r"70 + 2, so \boxed{72}", 1.0, 1.0), (r"\boxed{7} no, \boxed{72.0}", 1.0, 1.0),
                 (r"\boxed{1,072}", 0.0, 1.0), ("72", 0.0, 0.0), (r"\boxed{}", 0.0, 0.0)]
        self.rows("rows.jsonl", *(QUESTION | {"prompt": QUESTION["question"], "completion": completion}
                                  for completion, *_ in cases))
        file = "docs/examples/gsm8k_rewards.py"
        done = self.run_program("score", "--rewards", f"{file}:correct,{file}:has_box", "rows.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        scores = [list(json.loads(line).values()) for line in done.stdout.splitlines()]
        self.assertEqual(scores, [list(wanted) for _, *wanted in cases])

    def write_reward(self):
        page = ROOT / "docs" / "tasks" / "own-reward.md"
        text, = (block for block in blocks(page) if block.startswith("# my_rewards.py"))
        (self.dir / "my_rewards.py").write_text(text)

    def test_the_reward_of_the_page_gives_the_number_that_it_shows(self):
        self.write_reward()
        page = ROOT / "docs" / "tasks" / "own-reward.md"
        lines, = (block.splitlines() for block in blocks(page) if block.startswith("$ echo"))
        row = re.search(r"echo '(.*)' >rows.jsonl", lines[0]).group(1)
        (self.dir / "rows.jsonl").write_text(row + "\n")
        done = self.run_program(*lines[1].split()[2:])
        self.assertEqual(done.stdout.strip(), lines[2], done.stderr)

    def test_every_file_that_a_page_names_exists(self):
        for page in PAGES:
            text = page.read_text()
            links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
            for link in filter(None, links):
                if not link.startswith("http"):
                    self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")
            for name in re.findall(r"docs/examples/[\w./]+\.(?:yaml|py)", text):
                self.assertTrue((ROOT / name).exists(), f"{page.name}: {name}")


if __name__ == "__main__":
    unittest.main()
