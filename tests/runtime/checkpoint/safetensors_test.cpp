#include "runtime/checkpoint/safetensors.hpp"

#include <cstring>
#include <filesystem>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

std::string file_text(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  return text + header + std::string(data, 'x');
}

SafetensorsLayout layout(const std::string& text) {
  return read_layout(bytes_of(text), "f");
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::vector<std::byte> counted_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

}  // namespace

TEST_CASE("a valid header is read", "[safetensors]") {
  const auto read = layout(file_text(
      R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("nothing":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},)"
      R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[28,36]}}   )",
      36));
  REQUIRE(read.entries.size() == 4);
  CHECK(read.entries[0].name == "a");
  CHECK(read.entries[0].dtype == DType::bf16);
  CHECK(read.entries[1].name == "nothing");
  CHECK(read.entries[2].shape == std::vector<std::int64_t>{2, 3});
  CHECK(read.entries[3].shape.empty());
  CHECK(read.metadata == Metadata{{"format", "pt"}});
}

TEST_CASE("a file that does not match its header is rejected with its name", "[safetensors]") {
  struct Case {
    std::string text, message;
  };
  const auto [text, message] = GENERATE(values<Case>({
      {"1234567", "f: 7 bytes are too few"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 100000000 are allowed"},
      {file_text("{}", 0).substr(0, 9), "f: truncated: the header has 2 bytes, the file 9"},
      {file_text(" {}", 0), "does not begin with '{'"},
      {file_text("{\"a\":", 0), "f (header):1:6: invalid JSON"},
      {file_text("{\"a\xff\":1}", 0), "UTF-8"},
      {file_text(R"({"a":1})", 0), "f: tensor 'a': must be an object, not 1"},
      {file_text(one("F33", "[1]", "[0,4]"), 4), "tensor 'a': unknown dtype 'F33'"},
      {file_text(one("F32", "1", "[0,4]"), 4), "tensor 'a': shape must be a list"},
      {file_text(one("F32", "[-1]", "[0,4]"), 4), "shape's numbers must be whole numbers"},
      {file_text(one("F32", "[1]", "[0]"), 4), "data_offsets must be [begin, end]"},
      {file_text(one("F32", "[1]", "[0,4.5]"), 4), "not 4.5"},
      {file_text(one("F32", "[1]", "[4,0]"), 4), "end at 0 before they begin at 4"},
      {file_text(one("F32", "[2]", "[0,4]"), 4), "F32 of shape [2] takes 8 bytes, but "},
      {file_text(one("F32", "[4611686018427387904,4611686018427387904]", "[0,0]"), 0),
       "an invalid size"},
      {file_text(one("F32", "[9223372036854775807,8,0]", "[0,0]"), 0), "an invalid size"},
      {file_text(one("F4", "[3]", "[0,1]"), 1), "an invalid size"},
      {file_text(one("F32", "[2]", "[0,8]"), 7), "tensor 'a': truncated: it ends at byte 8"},
      {file_text(one("F32", "[1]", "[4,8]"), 8), "tensor 'a': 4 bytes before it belong to no"},
      {file_text(one("F32", "[1]", "[0,4]"), 6), "f: the last 2 bytes belong to no tensor"},
      {file_text(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                 6),
       "tensor 'b': begins at byte 2 of the data, within another tensor"},
      {file_text(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                 1),
       "duplicate key 'a'"},
      {file_text(R"({"__metadata__":{"a":1}})", 0), "__metadata__: 'a' must be a string, not 1"},
  }));
  CAPTURE(message);
  CHECK_THROWS_WITH(layout(text), Contains(message));
}

TEST_CASE("tensors written in any order and in pieces are read back", "[safetensors]") {
  const TempDir dir(TempDir::in_memory());
  const std::string path = dir.path("m.safetensors");
  const auto odd = counted_bytes(5), wide = counted_bytes(24), half = counted_bytes(12);
  SafetensorsWriter writer(path,
                           {{"odd", DType::u8, {5}},
                            {"half", DType::bf16, {2, 3}},
                            {"wide", DType::f32, {2, 3}},
                            {"none", DType::f32, {0}}},
                           {{"format", "pt"}, {"say", "\"hi\"\n"}});
  writer.write("odd", odd);
  writer.write("wide", std::span(wide).subspan(10, 4), 10);
  writer.write("wide", std::span(wide).first(10));
  writer.write("wide", std::span(wide).subspan(14), 14);
  CHECK_THROWS_WITH(writer.write("wide", std::span(wide).subspan(13, 1), 13),
                    Contains("tensor 'wide': bytes 13 to 14 were written twice"));
  CHECK_THROWS_WITH(writer.write("wide", wide, 1), Contains("do not fit into its 24"));
  CHECK_THROWS_WITH(writer.write("tall", wide), Contains("'tall': it is not in the plan"));
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_WITH(writer.finish(), Contains("'half': 12 of its 12 bytes were never written"));
  writer.write("half", half);
  const FileRecord record = writer.finish();

  const SafetensorsFile file(path);
  CHECK(file.entries()[0].name == "wide");  // largest elements first
  CHECK(file.metadata().at("say") == "\"hi\"\n");
  const auto same = [&](const char* name, const std::vector<std::byte>& bytes) {
    const auto got = file.bytes(*file.find(name));
    return std::equal(got.begin(), got.end(), bytes.begin(), bytes.end()) &&
           reinterpret_cast<std::uintptr_t>(got.data()) % size_of(file.find(name)->dtype) == 0;
  };
  CHECK(same("odd", odd));
  CHECK(same("half", half));
  CHECK(same("wide", wide));
  CHECK(file.find("none")->shape == std::vector<std::int64_t>{0});
  CHECK(file.find("gone") == nullptr);

  const std::string text = read_file(path, 1 << 20);
  CHECK(record == FileRecord{"m.safetensors", text.size(), digest_of(bytes_of(text))});
}

TEST_CASE("a writer that does not finish leaves only the older file", "[safetensors]") {
  const TempDir dir(TempDir::in_memory());
  write_file(dir.path("m.safetensors"), "older");
  {
    SafetensorsWriter writer(dir.path("m.safetensors"), {{"a", DType::u8, {4}}});
    writer.write("a", counted_bytes(4));
  }
  CHECK(read_file(dir.path("m.safetensors"), 100) == "older");
  const std::filesystem::directory_iterator files(dir.root());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("a plan that cannot be written is rejected with the tensor's name", "[safetensors]") {
  const TempDir dir(TempDir::in_memory());
  const auto plan = [&](std::vector<TensorPlan> tensors) {
    SafetensorsWriter(dir.path("m"), std::move(tensors));
  };
  CHECK_THROWS_WITH(plan({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}), Contains("'a'"));
  CHECK_THROWS_WITH(plan({{"a", DType::f32, {INT64_MAX, 4}}}), Contains("invalid shape"));
  CHECK_THROWS_WITH(plan({{"a\xff", DType::u8, {1}}}), Contains("not UTF-8"));
  CHECK_THROWS_WITH(plan({{"__metadata__", DType::u8, {1}}}), Contains("already used"));
}
