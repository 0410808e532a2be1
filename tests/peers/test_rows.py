"""Rows as they are read, compared with Python's csv and json modules and with pyarrow.

Needs the program `rows` in MGPU_BUILD/bin, and for Parquet and Arrow a Python that has pyarrow.
"""

import csv
import gzip
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")).resolve()
PROGRAM = BUILD / "bin" / "rows"
PLUGIN = BUILD / "libexec" / "mgpu" / "mgpu-columnar.so"

TEXTS = ["", " ", '"', '""', '"a"', 'a"b', "a,b", "\t", "a\nb", "a\r\nb", "\n", "'", "\\", "\\n",
         "è", "漢字 🙂", "\u2028", "{}", "[1]", "null", "1", "x" * 3_000_000]


def without_null_members(value):
    """As docs/data.md has it: members of structs that are null are left out."""
    if isinstance(value, dict):
        return {key: without_null_members(v) for key, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_null_members(v) for v in value]
    return value


@unittest.skipUnless(PROGRAM.exists(), "the program rows is not built")
class Rows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mgpu-rows-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def rows(self, path):
        env = dict(os.environ)
        if pyarrow:
            env["PYARROW_ROOT"] = str(pathlib.Path(pyarrow.__file__).parent)
        done = subprocess.run([PROGRAM, path], capture_output=True, env=env, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.decode().split("\n") if line]

    def rows_of(self, name, content):
        path = self.dir / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.rows(path)

    def test_csv_and_tsv_have_the_rows_of_the_csv_module(self):
        pairs = [{"n": str(i), "text": text} for i, text in enumerate(TEXTS)]
        for dialect, ending in (("excel", "csv"), ("excel-tab", "tsv"), ("unix", "csv")):
            for mark, quoting in (("", csv.QUOTE_MINIMAL), ("\ufeff", csv.QUOTE_ALL)):
                with self.subTest(dialect=dialect, quoting=quoting):
                    out = io.StringIO(newline="")
                    writer = csv.DictWriter(out, ["n", "text"], dialect=dialect, quoting=quoting)
                    writer.writeheader()
                    writer.writerows(pairs)
                    text = out.getvalue()
                    rows = self.rows_of(f"rows.{ending}", mark + text)
                    # An empty field without quotes is null.
                    for row in rows:
                        row["text"] = row["text"] or ""
                    csv.field_size_limit(1 << 23)
                    self.assertEqual(
                        rows, list(csv.DictReader(io.StringIO(text, newline=""), dialect=dialect)))
                    self.assertEqual(rows, pairs)

    def test_csv_by_hand(self):
        for text, rows in (
                ('a,b\r\n"x ""y"" z",\r\n\r\n"",2', [("x \"y\" z", None), ("", "2")]),
                ('a,b\n"1\n2","3,4"\n', [("1\n2", "3,4")]),
                ("a,b\n 1 , 2\n", [(" 1 ", " 2")])):
            with self.subTest(text=text):
                found = self.rows_of("rows.csv", text)
                self.assertEqual([(row["a"], row["b"]) for row in found], rows)
                reader = csv.reader(io.StringIO(text, newline=""))
                self.assertEqual([[a or "", b or ""] for a, b in rows],
                                 [row for row in list(reader)[1:] if row])

    def test_json_lines_and_lists_have_the_rows_of_the_json_module(self):
        rows = [{"text": text, "nested": {"list": [text, None, True, 1.5, -7, {"a": []}], "e": {}},
                 "big": 2**63 - 1, "small": 5e-324, "null": None, text[:50]: 0} for text in TEXTS]
        for ascii_only in (True, False):
            lines = "".join(json.dumps(r, ensure_ascii=ascii_only) + "\n" for r in rows)
            crlf = "\ufeff" + lines.replace("\n", "\r\n") + "\r\n"
            indented = "\ufeff" + json.dumps(rows, ensure_ascii=ascii_only, indent=3)
            for name, content in (
                    ("rows.jsonl", lines), ("crlf.jsonl", crlf),
                    ("rows.jsonl.gz", gzip.compress(lines.encode())),
                    ("rows.json", json.dumps(rows, ensure_ascii=ascii_only)),
                    ("indented.json", indented)):
                with self.subTest(name=name, ascii_only=ascii_only):
                    self.assertEqual(self.rows_of(name, content), rows)

    @unittest.skipUnless(pyarrow and PLUGIN.exists(), "needs pyarrow and the plug-in")
    def test_parquet_and_arrow_have_the_rows_of_pyarrow(self):
        count = len(TEXTS)
        texts = pyarrow.array(TEXTS)
        structs = [{"role": text[:9], "more": [{"n": i, "none": None}] * (i % 3)}
                   for i, text in enumerate(TEXTS)]
        numbers = pyarrow.array([None if i % 4 == 0 else i - 5 for i in range(count)])
        table = pyarrow.table({
            "text": texts, "large": texts.cast(pyarrow.large_string()),
            "dictionary": pyarrow.array([t[:3] for t in TEXTS]).dictionary_encode(),
            "empty": pyarrow.nulls(count), "number": numbers,
            "half": numbers.cast(pyarrow.float64()), "small": numbers.cast(pyarrow.int8()),
            "most": pyarrow.array([2**63 - 1] * count),
            "flag": pyarrow.array([i % 2 == 0 for i in range(count)]),
            "structs": pyarrow.array(structs),
            "lists": pyarrow.array([[[t], None, []] if len(t) % 2 else None for t in TEXTS]),
            "when": pyarrow.array(range(count)).cast(pyarrow.timestamp("ms"))})
        read = table.drop_columns(["when"])  # a type that rows do not have
        expected = [{key: without_null_members(value) for key, value in row.items()}
                    for row in read.to_pylist()]
        pyarrow.parquet.write_table(table, self.dir / "rows.parquet", row_group_size=5)
        pyarrow.parquet.write_table(table, self.dir / "plain.parquet", use_dictionary=False,
                                    compression="zstd")
        with pyarrow.ipc.new_file(self.dir / "rows.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=7)
        with pyarrow.ipc.new_stream(self.dir / "stream.arrow", table.schema) as file:
            file.write_table(table.slice(3))
        for name in ("rows.parquet", "plain.parquet", "rows.arrow", "stream.arrow"):
            with self.subTest(name=name):
                found = self.rows(self.dir / name)
                self.assertEqual(found, expected[3:] if name == "stream.arrow" else expected)


if __name__ == "__main__":
    unittest.main()
