#include <filesystem>
#include <string>

#include "runtime/data/digest.hpp"
#include "runtime/data/parallel.hpp"
#include "runtime/data/row.hpp"
#include "runtime/data/source_file.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("the pieces of a file contain each line once, with its line number", "[source]") {
  const TempDir dir(TempDir::in_memory());
  const std::string file = dir.path("a.jsonl");
  const std::string bom = GENERATE(as<std::string>(), "", "\xEF\xBB\xBF");
  const bool ends = GENERATE(false, true);
  // Lines of all lengths, some of them blank, and one longer than a piece.
  std::string text;
  for (int i = 0; text.size() < 3000000; ++i) {
    text += std::string(i == 300 ? 700000 : static_cast<std::size_t>(i) * 37 % 3001, 'x');
    text += "\n";
  }
  if (!ends) text.pop_back();
  write(file, bom + text);

  const SourceFile source(file, 2);
  CHECK(source.pieces() > 5);
  std::string joined;
  for (std::size_t i = 0; i < source.pieces(); ++i) {
    const auto lines = 1 + std::count(joined.begin(), joined.end(), '\n');
    CHECK(source.first_line(i) == static_cast<std::uint64_t>(lines));
    joined += source.piece(i);
  }
  CHECK((joined == text));
}

TEST_CASE("the digest depends on the contents only", "[source]") {
  const TempDir dir(TempDir::in_memory());
  std::string text(9000000, 'x');
  const auto a = dir.path("a.jsonl"), b = dir.path("b.jsonl");
  write(a, text);
  write(b, text);
  const std::string digest = SourceFile(a, 1).digest();
  CHECK(digest.size() == 64);
  CHECK(SourceFile(b, 3).digest() == digest);
  text[8500000] = 'y';
  write(b, text);
  CHECK(SourceFile(b, 1).digest() != digest);
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("a checksum detects every changed bit and every cut", "[digest]") {
  std::string bytes;
  for (int i = 0; i < 133; ++i) bytes += static_cast<char>(i * 31);
  const std::uint64_t sum = checksum(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    CHECK(checksum(changed) != sum);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK(checksum(std::string_view(bytes).substr(0, size)) != sum);
  CHECK(checksum(bytes + '\0') != sum);
}

TEST_CASE("files that cannot be read have a message with the path and what to do", "[source]") {
  const TempDir dir(TempDir::in_memory());
  struct Case {
    std::string name, bytes, what;
  };
  const auto [name, bytes, what] = GENERATE(values<Case>({
      {"a.jsonl", "\xff\xfe{", "iconv -f UTF-16"},
      {"a.xyz", "hello", "cannot tell the format"},
      {"a.jsonl.gz", "{}", "is named .gz, but its contents are not in the format of gzip"},
      {"a.jsonl",
       std::string("\xfd"
                   "7zXZ\0..",
                   8),
       "is xz, which is not supported; unpack it with: unxz -k"},
      {"it's.zip", "PK\x03\x04", "/it'\\''s.zip'"},
  }));
  write(dir.path(name), bytes);
  CHECK_THROWS_WITH(SourceFile(dir.path(name), 1), Contains(what) && Contains(dir.path(name)));
}

TEST_CASE("missing files, folders and devices have different messages", "[source]") {
  const TempDir dir(TempDir::in_memory());
  CHECK_THROWS_WITH(SourceFile(dir.path("none.jsonl"), 1), Contains("No such file or directory"));
  CHECK_THROWS_WITH(SourceFile(dir.root().string(), 1), Contains("is a folder"));
  CHECK_THROWS_WITH(SourceFile("/dev/null", 1), Contains("not a regular file"));
}

TEST_CASE("parallel work is done once, and the first error is rethrown", "[parallel]") {
  const int threads = GENERATE(0, 1, 4);
  std::vector<std::atomic<int>> done(100);
  for_each_index(100, threads, [&](std::size_t i) { ++done[i]; });
  for (const auto& count : done) CHECK(count == 1);
  for (int repeat = 0; repeat < 20; ++repeat)
    CHECK_THROWS_WITH(for_each_index(100, threads,
                                     [](std::size_t i) {
                                       if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
                                     }),
                      "7");
  for_each_index(0, threads, [](std::size_t) { FAIL("called without work"); });
}

TEST_CASE("rows of a file that changed while it was read are not used", "[source]") {
  const TempDir dir;
  const std::string file = dir.path("a.jsonl"), other = dir.path("b.jsonl");
  const std::string rows = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
  write(file, rows);
  write(other, "{\"text\":\"1\"}\n");
  const SourceFile source(file, 1);
  const auto read = [&] {
    std::string text;
    source.for_each_row([&](std::uint64_t, const Rows& row) {
      text += row.text();
      return true;
    });
    return text;
  };
  CHECK(read() == rows);
  SECTION("if it was overwritten") {
    std::fstream(file) << "{\"text\":\"uno\"}";
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now());
    CHECK_THROWS_WITH(read(), "another program changed " + file +
                                  " while it was read; start again when the file is complete");
  }
  SECTION("if it became shorter within its last page, whose rest reads as zeros") {
    std::filesystem::resize_file(file, 20);
    CHECK_THROWS_WITH(read(), Contains("another program changed"));
    CHECK_THROWS_WITH(for_each_block(
                          source, 1, [](std::size_t) { return true; }, [](const Block&) {}),
                      Contains("another program changed"));
  }
  SECTION("but those of a file with new rows at its end are") {
    std::ofstream(file, std::ios::app) << "{\"text\":\"three\"}\n";
    CHECK(read() == rows);
  }
  SECTION("and so are those of a file with only another time") {
    std::filesystem::last_write_time(file, std::filesystem::file_time_type{});
    CHECK(read() == rows);
  }
  SECTION("and those of a file that was replaced") {
    std::filesystem::rename(other, file);
    CHECK(read() == rows);
  }
  SECTION("or removed") {
    std::filesystem::remove(file);
    CHECK(read() == rows);
  }
}
