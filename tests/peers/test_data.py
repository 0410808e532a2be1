"""mgpu-train data: the same rows in all formats, datasets as other programs name them, bad input.

Runs the front end alone: no GPU, no LibTorch. Files in Parquet and Arrow are written by pyarrow.
"""

import csv
import gzip
import io
import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import environment  # noqa: E402

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")).resolve()
PROGRAM = BUILD / "bin" / "mgpu-train"
PLUGIN = BUILD / "libexec" / "mgpu" / "mgpu-columnar.so"
TOKENIZER = ROOT / "docs" / "examples" / "tokenizer"
LIMIT = 60

ROWS = [{"prompt": f'{i} + "{i + 1}",\n', "completion": f"{2 * i + 1} è\t"} for i in range(40)]
TEMPLATE = ("{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.reasoning_content }}\n"
            "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")


def csv_text(rows, **options):
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0].keys(), **options)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@unittest.skipUnless(PROGRAM.exists(), "mgpu-train is not built")
class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-data-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def run_data(self, env=None, **keys):
        recipe = self.dir / "recipe.yaml"
        recipe.write_text(json.dumps({
            "model_size": "tiny", "tokenizer_path": str(TOKENIZER), "max_length": 200,
            "dataset_prepared_path": str(self.dir / "cache"), **keys}))
        return subprocess.run([PROGRAM, "data", recipe, "--rows", "100"], cwd=self.dir,
                              env=environment(**(env or {})), capture_output=True, text=True,
                              timeout=LIMIT)

    def shown(self, **keys):
        """What follows the counts of files, without paths and line numbers."""
        done = self.run_data(**keys)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = done.stdout[done.stdout.index("\n\n", done.stdout.index("\n\n") + 2):]
        return "\n".join(line.split(": ", 1)[1] if line.startswith("/") or ".yaml" in line else line
                         for line in text.splitlines() if not line.startswith(str(self.dir)))

    def refused(self, *parts, **keys):
        done = self.run_data(**keys)
        self.assertIn(done.returncode, (1, 2), done.stdout)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def write(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def jsonl(self, name="rows.jsonl", rows=ROWS):
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def test_all_text_formats_have_the_same_examples(self):
        expected = self.shown(dataset_name=self.jsonl())
        self.assertIn("⟦1 è\t".replace("\t", "\\x09"), expected)
        self.assertIn("40 examples", expected)
        files = {
            "rows.json": json.dumps(ROWS, indent=2),
            "rows.csv": "\ufeff" + csv_text(ROWS),
            "rows.tsv": csv_text(ROWS, dialect="excel-tab", quoting=csv.QUOTE_ALL),
            "rows.jsonl.gz": gzip.compress("".join(json.dumps(r) + "\n" for r in ROWS).encode()),
            "rows.csv.gz": gzip.compress(csv_text(ROWS).encode()),
        }
        for name, content in files.items():
            with self.subTest(name=name):
                self.assertEqual(self.shown(dataset_name=self.write(name, content)), expected)

    @unittest.skipUnless(pyarrow and PLUGIN.exists(), "needs pyarrow and the plug-in")
    def test_parquet_and_arrow_have_the_same_examples(self):
        folder = pathlib.Path(pyarrow.__file__).parent
        table = pyarrow.Table.from_pylist(ROWS)
        expected = self.shown(dataset_name=self.jsonl())
        env = {"PYARROW_ROOT": str(folder)}
        pyarrow.parquet.write_table(table, self.dir / "rows.parquet", row_group_size=7)
        with pyarrow.ipc.new_file(self.dir / "rows.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=9)
        with pyarrow.ipc.new_stream(self.dir / "stream.arrow", table.schema) as file:
            file.write_table(table)
        with unittest.mock.patch.dict(os.environ, env):
            for name in ("rows.parquet", "rows.arrow", "stream.arrow"):
                with self.subTest(name=name):
                    self.assertEqual(self.shown(dataset_name=str(self.dir / name)), expected)

    @unittest.skipUnless(pyarrow and PLUGIN.exists(), "needs pyarrow and the plug-in")
    def test_types_of_columns(self):
        rows = [{"messages": [{"role": "user", "content": "a", "extra": None},
                              {"role": "assistant", "content": "b", "extra": 1}],
                 "score": 1.5, "blob": b"x"}]
        path = self.dir / "types.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        env = {"PYARROW_ROOT": str(pathlib.Path(pyarrow.__file__).parent)}
        template = self.write("template.jinja", TEMPLATE)
        with unittest.mock.patch.dict(os.environ, env):
            self.assertIn("u⟦ser:a\nassistant:b",
                          self.shown(dataset_name=str(path), chat_template=template))
            self.refused("types.parquet", "blob (binary)", dataset_format="text",
                         dataset_name=[{"path": str(path), "field": "blob"}],
                         dataset_prepared_path=str(self.dir / "none"))
            self.assertEqual(list((self.dir / "none").rglob("*.*")), [])
            self.refused("cut.parquet", dataset_name=self.write(
                "cut.parquet", path.read_bytes()[:-20]))

    @unittest.skipUnless(pyarrow and PLUGIN.exists(), "needs pyarrow and the plug-in")
    def test_a_value_of_arrow_outside_of_its_data_is_reported(self):
        count, far = 40, 0x7f000000
        texts = [f"{i:02}" + "y" * (12 + i % 7) for i in range(count)]
        ends = [0, *itertools.accumulate(map(len, texts))]
        numbers = list(range(count))
        lists = [numbers[:1 + i % 5] for i in numbers]
        list_ends = [0, *itertools.accumulate(map(len, lists))]
        view = struct.pack("<i4sii", len(texts[5]), texts[5][:4].encode(), 0, ends[5])
        strings = pyarrow.array(texts)

        def with_far(code, values):
            return (struct.pack(f"<{len(values)}{code}", *values),
                    struct.pack(f"<{len(values)}{code}", *values[:5], far, *values[6:]))

        cases = {"string": (strings, *with_far("i", ends)),
                 "large": (strings.cast(pyarrow.large_string()), *with_far("q", ends)),
                 "view": (strings.cast(pyarrow.string_view()), view,
                          view[:-4] + struct.pack("<i", far)),
                 "dictionary": (strings.dictionary_encode(), *with_far("i", numbers)),
                 "list": (pyarrow.array(lists), *with_far("i", list_ends))}
        env = {"PYARROW_ROOT": str(pathlib.Path(pyarrow.__file__).parent)}
        with unittest.mock.patch.dict(os.environ, env):
            for name, (column, right, wrong) in cases.items():
                with self.subTest(name=name):
                    table = pyarrow.table({"text": texts, "extra": column})
                    path = self.dir / f"{name}.arrow"
                    with pyarrow.ipc.new_file(path, table.schema) as file:
                        file.write_table(table)
                    # The right text column comes first.
                    before, found, behind = path.read_bytes().rpartition(right)
                    self.assertTrue(found)
                    self.shown(dataset_name=str(path), dataset_format="text")
                    path.write_bytes(before + wrong + behind)
                    self.refused("is damaged behind row", dataset_name=str(path),
                                 dataset_format="text")

    @unittest.skipUnless(PLUGIN.exists(), "needs the plug-in")
    def test_without_pyarrow_one_line_has_the_command(self):
        folder = self.dir / "other" / "pyarrow"
        folder.mkdir(parents=True)
        (folder / "_generated_version.py").write_text("__version__ = version = '1.2.3'\n")
        plugin = self.dir / "libexec" / "mgpu" / PLUGIN.name
        program = self.dir / "bin" / "mgpu-train"
        for path, source in ((plugin, PLUGIN), (program, PROGRAM)):
            path.parent.mkdir(parents=True)
            path.write_bytes(source.read_bytes())
            path.chmod(0o755)
        # As in a package, where the plug-in does not know the folder of the build.
        sys.path.insert(0, str(ROOT / "scripts"))
        from release import elf
        elf.set_runpath(plugin, ["$ORIGIN/none"])
        recipe = self.write("recipe.yaml", json.dumps({
            "model_size": "tiny", "tokenizer_path": str(TOKENIZER),
            "dataset_name": self.write("a.parquet", b"PAR1")}))
        for found in ("", str(folder)):
            done = subprocess.run([program, "data", recipe], capture_output=True, text=True,
                                  env=environment(PYARROW_ROOT=found), timeout=LIMIT)
            self.assertIn("a.parquet is in the format Parquet, which is read with pyarrow 26.0.1",
                          done.stderr)
            self.assertIn("python3 -m pip install pyarrow==26.0.1", done.stderr)
            self.assertEqual("but " + str(folder) + " has 1.2.3" in done.stderr, bool(found))

    def test_folders_patterns_and_splits(self):
        for name in ("d/train-0.jsonl", "d/train-1.jsonl", "d/test.jsonl"):
            self.jsonl(name)
        folder = str(self.dir / "d")
        self.assertIn("80 examples", self.shown(dataset_name=folder))
        self.assertIn("40 examples", self.shown(dataset_name=[{"path": folder, "split": "test"}]))
        self.assertIn("120 examples", self.shown(dataset_name=folder + "/*.jsonl"))
        self.assertIn("20 examples", self.shown(
            dataset_name=[{"path": folder, "split": "train[:10%]+test[-12:]"}]))
        self.assertIn("7 examples", self.shown(dataset_name=folder, max_samples=7))
        self.assertIn("40 examples", self.shown(
            dataset_name=[{"path": folder, "data_files": "train-1*"}]))
        self.refused("has no split dev; it has train, test",
                     dataset_name=[{"path": folder, "split": "dev"}])
        self.refused("has no split test; a file has only train",
                     dataset_name=[{"path": self.jsonl(), "split": "test"}])
        self.refused("the split has 40 rows, but its slice needs 41",
                     dataset_name=[{"path": self.jsonl(), "split": "train[:41]"}])
        self.refused("no file matches", dataset_name=folder + "/*.csv")
        self.refused("weight", "above 0", dataset_name=[{"path": folder, "weight": 0}])

    def test_columns_by_name(self):
        template = self.write("template.jinja", TEMPLATE)
        path = self.jsonl("chat.jsonl", [{"dialog": [
            {"who": "human", "text": "1+1"}, {"who": "bot", "text": "2", "why": " so"}]}])
        text = self.shown(chat_template=template, dataset_name=[{
            "path": path, "type": "chat_template", "field_messages": "dialog",
            "message_property_mappings": {"role": "who", "content": "text",
                                          "reasoning_content": "why"},
            "roles": {"user": ["human"], "assistant": ["bot"]}}])
        self.assertIn("user:1+1\nassistant:⟦2 so", text)
        path = self.jsonl("qa.jsonl", [{"q": "1+1", "a": "2"}])
        self.assertIn("1+1⟦2", self.shown(dataset_name=[{
            "path": path, "columns": {"prompt": "q", "completion": "a"}}]))
        fields = {"field_instruction": "q", "field_output": "a"}
        for changes, expected in (({"no_input_format": "Q {instruction} A "}, "Q 1+1 A ⟦2"),
                                  # As axolotl does: the format is for rows with an input.
                                  ({"format": "Q {instruction} {input} A "}, "\n1+1 ⟦2"),
                                  ({"format": "Q {instruction} {input} A ", "field_input": "q"},
                                   "Q 1+1 1+1 A ⟦2")):
            self.assertIn(expected, self.shown(
                dataset_name=[{"path": path, "type": {**fields, **changes}}]))
        self.refused('qa.jsonl:1: the column "question", which is the prompt, is missing; '
                     "the row has q, a",
                     dataset_name=[{"path": path, "columns": {"prompt": "question"}}])

    def test_names_of_llama_factory(self):
        template = self.write("template.jinja", TEMPLATE)
        self.jsonl("lf/chat.json", [{"conversations": [{"from": "human", "value": "1+1"},
                                                       {"from": "gpt", "value": "2"}]}])
        self.write("lf/dataset_info.json", json.dumps({
            "chat": {"file_name": "chat.json", "formatting": "sharegpt", "file_sha1": "0"},
            "qa": {"file_name": "qa.json", "columns": {"prompt": "q", "response": "a"}},
            "pairs": {"file_name": "qa.json", "ranking": True}}))
        self.write("lf/qa.json", json.dumps([{"q": "3+4", "a": "7"}]))
        keys = {"dataset_dir": str(self.dir / "lf"), "chat_template": template}
        text = self.shown(dataset="chat, qa", **keys)
        self.assertIn("user:1+1\nassistant:⟦2", text)
        self.assertIn("user:3+4\nassistant:⟦7", text)
        self.refused("dataset_info.json has no dataset other; it has chat, pairs, qa",
                     dataset="other", **keys)
        self.refused("ranking", dataset="pairs", **keys)

    def test_bad_files_are_refused_in_one_line_and_leave_nothing(self):
        rows = gzip.compress("".join(json.dumps(r) + "\n" for r in ROWS).encode())
        cases = [
            ("cut.jsonl.gz", rows[:-30], ["cut.jsonl.gz is truncated"]),
            ("fields.csv", "prompt,completion\na,b\na,b,c\n", ["fields.csv:3: the row has 3 fields"]),
            ("quote.csv", 'prompt,completion\n"a"b,c\n', ["quote.csv:2: field 1 has b,c behind"]),
            ("other.jsonl", '{"text": "a"}\n{"prompt": "b"}\n',
             ['other.jsonl:2: the column "text" is missing; the row has prompt']),
            ("list.json", '[{"text": "a"}, {"text": "b"', ["list.json:2: the JSON list has no end"]),
            ("columns.csv", "a,b\n1,2\n", ["cannot detect the dataset format from the columns a, b"]),
            ("wide.txt", "a\n\xff".encode("latin-1"), ["wide.txt:2: invalid UTF-8"]),
        ]
        for name, content, parts in cases:
            with self.subTest(name=name):
                self.refused(*parts, dataset_name=self.write(name, content))
                left = [p for p in (self.dir / "cache").rglob("*") if p.is_file()]
                self.assertEqual(left, [])

    def test_bad_recipes_are_refused_in_one_line_and_leave_nothing(self):
        rows, more = self.jsonl(), self.jsonl("more.jsonl")
        unknown = self.write("unknown.jinja", "{% for m in messages %}{{ m.content.no.name }}"
                             "{% endfor %}")
        chat = self.jsonl("chat.jsonl", [{"messages": [{"role": "user", "content": "a"},
                                                       {"role": "assistant", "content": "b"}]}])
        two = {"dataset_name": [rows, more]}
        cases = [
            (["rows.jsonl", 'the column "question" of the prompt_template is missing'],
             {"dataset_name": rows, "prompt_template": "{question}", "dataset_format": "auto"}),
            (["chat.jsonl:1: ", "no"], {"dataset_name": chat, "chat_template": unknown}),
            (["weight", "above 0"], {"dataset_name": [{"path": rows, "weight": 0}]}),
            (["interleave_probs", "above 0"],
             {**two, "mix_strategy": "interleave_under", "interleave_probs": [0.5, 0]}),
            (["interleave_probs", "above 0"],
             {**two, "mix_strategy": "interleave_over", "interleave_probs": "0.5,-1"}),
            (["interleave_probs: has 3 numbers, but dataset_name has 2 datasets"],
             {**two, "mix_strategy": "interleave_under", "interleave_probs": [1, 1, 1]}),
            (["interleave_probs: has no effect with mix_strategy: concat"],
             {**two, "interleave_probs": [1, 1]}),
            (["mix_strategy: contradicts the weight of "],
             {"dataset_name": [rows, {"path": more, "weight": 2}],
              "mix_strategy": "interleave_over"}),
            (["has no split dev"], {"dataset_name": [{"path": rows, "split": "dev"}]}),
            (["streaming: requires max_steps"], {"dataset_name": rows, "streaming": True}),
            (["streaming: does not hold out rows", "eval_dataset"],
             {"dataset_name": rows, "streaming": True, "max_steps": 5, "val_set_size": 0.1}),
            (["streaming: cannot compare rows", "remove dataset_exact_deduplication"],
             {"dataset_name": rows, "streaming": True, "max_steps": 5,
              "dataset_exact_deduplication": True}),
            (["needs the number of rows, which streaming does not know"],
             {"dataset_name": [{"path": rows, "split": "train[:10%]"}], "streaming": True,
              "max_steps": 5}),
        ]
        for parts, keys in cases:
            with self.subTest(parts=parts):
                before = set(self.dir.rglob("*"))
                self.refused(*parts, **keys)
                new = {p for p in set(self.dir.rglob("*")) - before
                       if p.is_file() and p.name != "recipe.yaml"}
                self.assertEqual(new, set())

    def test_quotes_in_quotes_are_read(self):
        path = self.write("quotes.csv", 'prompt,completion\n"a ""b ""c"""" d","""e"""\n')
        self.assertIn('a "b "c"" d⟦"e"', self.shown(dataset_name=path))

    def test_the_beginning_of_a_stream_is_shown(self):
        text = self.run_data(dataset_name=self.jsonl(), streaming=True, max_steps=5,
                             buffer_size=7).stdout
        self.assertIn("7 examples", text)
        self.assertIn("the first 7 rows of each dataset", text)

    def test_what_is_dropped_is_counted_with_the_reason(self):
        path = self.jsonl(rows=[{"prompt": "1" * 300, "completion": "2"}, ROWS[0], {"prompt": "x"}])
        done = self.run_data(dataset_name=path, on_bad_row="skip")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"  1 of 3 rows skipped as bad:\n    {path}:3: ", done.stdout)
        self.assertIn("\n  1 of 3 rows dropped: no target", done.stdout)
        self.assertIn("dropped: no target token within max_length 200", done.stdout)
        self.assertIn("1 kept", done.stdout)

    def test_rows_with_tools_that_the_template_does_not_write_are_counted(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        call = {"type": "function", "function": {"name": "f", "arguments": {}}}
        question = {"role": "user", "content": "a"}
        answer = {"role": "assistant", "content": "b"}
        path = self.jsonl(rows=[
            {"messages": [question, answer]}, {"messages": [question, answer], "tools": [tool]},
            {"messages": [question, {"role": "assistant", "content": "", "tool_calls": [call]}]}])
        line = "2 of 3 rows with tools or tool calls that the chat template does not write"
        self.assertIn(line, self.run_data(dataset_name=path, chat_template="chatml").stdout)
        done = self.run_data(dataset_name=path, chat_template="qwen")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("tool calls", done.stdout)
        self.assertIn("# Tools", done.stdout)

    def test_images_in_messages_are_refused(self):
        part = {"type": "image_url", "image_url": {"url": "x"}}
        message = {"role": "user", "content": [part, {"type": "text", "text": "what"}]}
        path = self.jsonl(rows=[{"messages": [message, {"role": "assistant", "content": "b"}]}])
        self.refused(f'{path}:1: message 1 of "messages" has a part of type "image_url"; images '
                     "are not supported", dataset_name=path, chat_template="chatml")

    def test_the_output_has_colours_only_on_a_terminal(self):
        self.assertNotIn("\x1b", self.run_data(dataset_name=self.jsonl()).stdout)
        import pty
        recipe = self.dir / "recipe.yaml"
        main, side = pty.openpty()
        with subprocess.Popen([PROGRAM, "data", recipe, "--rows", "1"], stdout=side,
                              env=environment()) as process:
            os.close(side)
            text = b""
            try:
                while block := os.read(main, 1 << 16):
                    text += block
            except OSError:  # the other side is closed
                pass
            self.assertEqual(process.wait(LIMIT), 0)
        os.close(main)
        self.assertIn(b"\x1b[32m", text)
        self.assertNotIn("⟦1".encode(), text)


if __name__ == "__main__":
    unittest.main()
