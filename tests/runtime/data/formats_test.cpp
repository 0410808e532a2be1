#include <zlib.h>
#include <zstd.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/data/csv.hpp"
#include "runtime/data/source_file.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd_compressed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the program zstd does
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

// "number: row" of every row of a file.
std::vector<std::string> rows_of(const TempDir& dir, const std::string& name,
                                 const std::string& bytes, const FileOptions& options = {}) {
  write(dir.path(name), bytes);
  std::vector<std::string> rows;
  const SourceFile file(dir.path(name), 1, options);
  file.for_each_row([&](std::uint64_t number, const Rows& row) {
    rows.push_back(fmt::format("{}: {}", number, row.parse().dump()));
    return true;
  });
  return rows;
}

using Texts = std::vector<std::string>;

std::string many_csv_rows(int count) {
  std::string text = "text,n\n";
  for (int i = 0; i < count; ++i)
    text += fmt::format("\"line {}\n{} \"\"quoted\"\", {}\",{}\n", i,
                        std::string(static_cast<std::size_t>(i) * 37 % 900, 'x'), i, i);
  return text;
}

}  // namespace

TEST_CASE("rows of all text formats have the number of their line or row", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  const std::string bom = GENERATE(as<std::string>(), "", "\xEF\xBB\xBF");
  CHECK(rows_of(dir, "a.csv", bom + "q,a\r\n\"x, \"\"y\"\"\nz\",1\r\n\r\n,\"\"\n") ==
        Texts{R"(2: {"q":"x, \"y\"\nz","a":"1"})", R"(5: {"q":null,"a":""})"});
  CHECK(rows_of(dir, "a.tsv", bom + "q\ta\nx,\"y\"\t1") == Texts{R"(2: {"q":"x,\"y\"","a":"1"})"});
  CHECK(rows_of(dir, "a.txt", bom + "one\r\n\n two") ==
        Texts{R"(1: {"text":"one"})", R"(3: {"text":" two"})"});
  CHECK(rows_of(dir, "a.json", bom + " [\n{\"a\": \"],\\\"\"} ,\n{\"b\": [1, {\"c\": 2}]}\n]\n") ==
        Texts{R"(1: {"a":"],\""})", R"(2: {"b":[1,{"c":2}]})"});
  CHECK(rows_of(dir, "b.json", bom + "{\"a\": 1}\n\n{\"a\": 2}") ==
        Texts{R"(1: {"a":1})", R"(3: {"a":2})"});
  CHECK(rows_of(dir, "c.json", "[]").empty());
  CHECK(rows_of(dir, "a.data", "a;b\n", {.type = "csv"}).empty());
}

TEST_CASE("compressed files have the rows of their contents", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = "{\"a\":1}\n{\"a\":2}\n";
  const Texts rows{R"(1: {"a":1})", R"(2: {"a":2})"};
  CHECK(rows_of(dir, "a.jsonl.gz", gzipped(text)) == rows);
  CHECK(rows_of(dir, "a.json.zst", zstd_compressed(text)) == rows);
  CHECK(rows_of(dir, "a.jsonl", gzipped(text)) == rows);  // contents decide
  // Several members or frames, and the zeros that tapes add.
  CHECK(rows_of(dir, "b.jsonl.gz",
                gzipped("{\"a\":1}\n{\"a\"") + gzipped(":2}\n") + std::string(512, '\0')) == rows);
  CHECK(rows_of(dir, "b.jsonl.zst",
                zstd_compressed("{\"a\":1}\n") + zstd_compressed("{\"a\":2}\n")) == rows);
}

TEST_CASE("rows behind megabytes of blank lines are read", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  const std::string blank(5 << 20, '\n');
  CHECK(rows_of(dir, "a.csv", blank + "q,a\n" + blank + "x,1\n") ==
        Texts{R"(10485762: {"q":"x","a":"1"})"});
  CHECK(rows_of(dir, "a.jsonl.gz", gzipped("{\"a\":1}\n" + blank + "{\"a\":2}\n")) ==
        Texts{R"(1: {"a":1})", R"(5242882: {"a":2})"});
}

TEST_CASE("truncated and damaged compressed files are refused at every length", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = many_csv_rows(50);
  const bool zstd = GENERATE(false, true);
  const std::string name = zstd ? "a.csv.zst" : "a.csv.gz";
  const std::string whole = zstd ? zstd_compressed(text) : gzipped(text);
  for (std::size_t size = 4; size < whole.size(); size += 1 + size / 40)
    CHECK_THROWS_WITH(rows_of(dir, name, whole.substr(0, size)),
                      Contains(dir.path(name) + " is truncated"));
  std::string damaged = whole;
  for (std::size_t at = whole.size() / 2; at < whole.size() / 2 + 8; ++at) damaged[at] ^= 0x55;
  CHECK_THROWS_WITH(rows_of(dir, name, damaged), Contains(" is damaged near byte "));
  CHECK_THROWS_WITH(rows_of(dir, name, whole + "more"), Contains(" is damaged near byte "));
}

TEST_CASE("bad rows and files name the line or row", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  struct Case {
    std::string name, bytes, what;
  };
  const auto [name, bytes, what] = GENERATE(values<Case>({
      {"a.csv", "a,b\n1,2\n1,2,3\n", "the row has 3 fields, but the first row names 2 columns"},
      {"a.csv", "a,b\n\"1\"x,2\n", "field 1 has x,2 behind its closing quote"},
      {"a.csv", "a,b\n1,\"2\n3,4\n", "the quote of field 2 is not closed"},
      {"a.csv", "a,b\n1,\xff\n", "invalid UTF-8"},
      {"a.csv", "a,a\n1,2\n", "a.csv:1: the column \"a\" occurs twice"},
      {"a.txt", "a\xff\n", "invalid UTF-8"},
      {"a.json", "[{}, {}", "a.json:2: the JSON list has no end; the file is truncated"},
      {"a.json", "[{}, {} {}]", "unexpected content after the object"},
      {"a.json", "[{}, ]", "a.json:2: expected a row behind the comma"},
      {"a.json", "[{},, {}]", "a.json:2: expected a row before the comma"},
      {"a.json", "[{}] {}", "a.json:1: unexpected content behind the JSON list"},
      {"a.json", "[1]", "not a JSON object"},
      {"a.json", "[{\"a\": \"x}]", "a.json:1: the JSON list has no end"},
  }));
  CAPTURE(name, bytes);
  CHECK_THROWS_WITH(rows_of(dir, name, bytes), Contains(what));
}

TEST_CASE("a column without a name is called as by pandas", "[formats]") {
  CHECK(csv_columns(",a,\"\"", ',') == Texts{"Unnamed: 0", "a", "Unnamed: 2"});
}

TEST_CASE("blocks contain each row once, whatever the number of threads", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = many_csv_rows(20000);
  const auto expected = rows_of(dir, "a.csv", text);
  CHECK(expected.size() == 20000);
  CHECK(expected.back().starts_with("40000: "));
  write(dir.path("a.csv.gz"), gzipped(text));
  const int threads = GENERATE(1, 3);
  const SourceFile file(dir.path("a.csv.gz"), 1);
  std::mutex mutex;
  std::map<std::uint64_t, std::string> rows;
  std::size_t blocks = 0;
  const auto firsts = for_each_block(
      file, threads, [](std::size_t) { return true; },
      [&](const Block& block) {
        const std::lock_guard lock(mutex);
        ++blocks;
        for (Rows row(file.syntax(), block.text); row.next();) {
          const auto number = block.first + row.offset();
          rows[number] = fmt::format("{}: {}", number, row.parse().dump());
        }
      });
  CHECK(blocks > 2);
  CHECK(firsts.size() == blocks);
  Texts found;
  for (const auto& [number, row] : rows) found.push_back(row);
  CHECK((found == expected));
}

TEST_CASE("a row limit ends the last block", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  CHECK(rows_of(dir, "a.jsonl", "{}\n\n{}\n{}\n", {.row_limit = 2}) == Texts{"1: {}", "3: {}"});
  CHECK(rows_of(dir, "a.json", "[{},{},{}]", {.row_limit = 2}) == Texts{"1: {}", "2: {}"});
  CHECK(rows_of(dir, "a.csv", many_csv_rows(9), {.row_limit = 4}).size() == 4);
}

TEST_CASE("the exception of the first bad block is reported", "[formats]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.csv"), many_csv_rows(20000));
  const SourceFile file(dir.path("a.csv"), 1);
  for (int repeat = 0; repeat < 10; ++repeat)
    CHECK_THROWS_WITH(for_each_block(
                          file, 4, [](std::size_t) { return true; },
                          [](const Block& block) {
                            if (block.index > 0)
                              throw std::runtime_error(std::to_string(block.index));
                          }),
                      "1");
}
