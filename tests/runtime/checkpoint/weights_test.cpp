#include "runtime/checkpoint/weights.hpp"

#include <filesystem>

#include "tests/support/catch.hpp"
#include "tests/support/passing_failure.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

void write_one(const std::string& path, const std::string& tensor, std::int64_t length = 4) {
  SafetensorsWriter writer(path, {{tensor, DType::u8, {length}}});
  writer.write(tensor, std::vector<std::byte>(length, static_cast<std::byte>(tensor[0])));
  writer.finish();
}

// A folder whose index lists a in 1 and b in 2.
void write_index(const TempDir& dir, const std::string& map) {
  write_file(dir.path("model.safetensors.index.json"), R"({"weight_map": )" + map + "}");
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("weights that fit into one file are one file", "[weights]") {
  const TempDir dir(TempDir::in_memory());
  WeightsWriter writer(dir.root(), {{"a", DType::u8, {2}}});
  writer.write("a", bytes_of("hi"));
  const auto records = writer.finish();
  CHECK(files_in(dir.root()) == std::vector<std::string>{"model.safetensors"});
  CHECK(records.size() == 1);
  const Weights weights(dir.root());
  CHECK(text_of(weights.get("a").bytes) == "hi");
}

TEST_CASE("weights are split into shards of at most the given size", "[weights]") {
  const TempDir dir(TempDir::in_memory());
  WeightsWriter writer(dir.root(),
                       {{"a", DType::u8, {3}},
                        {"b", DType::u8, {3}},
                        {"long", DType::u8, {9}},
                        {"c", DType::u8, {1}}},
                       6);
  for (const char* name : {"c", "b", "a"})
    writer.write(name, bytes_of(std::string(name[0] == 'c' ? 1 : 3, name[0])));
  writer.write("long", bytes_of("123456789"));
  CHECK_THROWS_WITH(writer.write("d", {}), Contains("'d' is not in the plan"));
  const auto records = writer.finish();
  CHECK(files_in(dir.root()) == std::vector<std::string>{"model-00001-of-00003.safetensors",
                                                         "model-00002-of-00003.safetensors",
                                                         "model-00003-of-00003.safetensors",
                                                         "model.safetensors.index.json"});
  CHECK(records.size() == 4);
  const Weights weights(dir.root());
  CHECK(weights.names() == std::vector<std::string>{"a", "b", "c", "long"});
  CHECK(text_of(weights.get("b").bytes) == "bbb");
  CHECK_THAT(weights.get("long").file, Contains("00002-of-00003"));
  for (const FileRecord& record : records)
    CHECK(record.digest == digest_of(bytes_of(read_file(dir.path(record.name), 1000))));
}

TEST_CASE("a tensor that is missing or has another shape is reported by name", "[weights]") {
  const TempDir dir(TempDir::in_memory());
  write_one(dir.path("model.safetensors"), "a");
  const Weights weights(dir.root());
  CHECK(weights.get(TensorShape{"a", {4}}).dtype == DType::u8);
  CHECK_THROWS_WITH(weights.get_floats(TensorShape{"a", {4}}),
                    Contains("tensor 'a' has dtype U8, but F32, F16, BF16 or F64 is required"));
  CHECK_FALSE(weights.find("b"));
  CHECK_THROWS_WITH(weights.get("b"), Contains("tensor 'b' is missing"));
  CHECK_THROWS_WITH(weights.get(TensorShape{"a", {2, 2}}),
                    Contains("tensor 'a' has shape [4], but [2, 2] is required"));
}

TEST_CASE("an index that does not match its shards is rejected", "[weights]") {
  const TempDir dir(TempDir::in_memory());
  write_one(dir.path("1"), "a");
  write_one(dir.path("2"), "b");
  SECTION("a shard is missing") {
    write_index(dir, R"({"a": "1", "b": "3"})");
    CHECK_THROWS_WITH(Weights(dir.root()), Contains("/3 is missing, but"));
  }
  SECTION("a tensor is in another shard than listed") {
    write_index(dir, R"({"a": "2", "b": "1"})");
    CHECK_THROWS_WITH(Weights(dir.root()), Contains("but the index lists it in"));
  }
  SECTION("a listed tensor is missing") {
    write_index(dir, R"({"a": "1", "c": "2"})");
    CHECK_THROWS_WITH(Weights(dir.root()), Contains("lists tensor 'c' in 2, but it is not there"));
  }
  SECTION("a tensor is in two shards") {
    write_one(dir.path("2"), "a");
    write_index(dir, R"({"a": "1", "b": "2"})");
    CHECK_THROWS_WITH(Weights(dir.root()), Contains("tensor 'a' is in two files"));
  }
  SECTION("a shard is in another folder") {
    write_index(dir, GENERATE(R"({"a": "../1"})", R"({"a": "/1"})", R"({"a": ""})", R"({"a": 1})"));
    CHECK_THROWS_WITH(Weights(dir.root()),
                      Contains("must be the name of a file in the same folder"));
  }
  SECTION("the index has no weight_map") {
    write_file(dir.path("model.safetensors.index.json"), "{}");
    CHECK_THROWS_WITH(Weights(dir.root()), Contains("weight_map is missing"));
  }
}

TEST_CASE("a folder without safetensors is rejected with a remedy", "[weights]") {
  const TempDir dir(TempDir::in_memory());
  CHECK_THROWS_WITH(Weights(dir.root()), Contains("has neither model.safetensors nor"));
  CHECK_THROWS_WITH(Weights(dir.path("gone")), Contains("gone is not a folder"));
  write_file(dir.path("pytorch_model.bin"), "PK");
  CHECK_THROWS_WITH(Weights(dir.root()),
                    Contains("has only pytorch_model.bin") && Contains("save_pretrained("));
}

TEST_CASE("weights that cannot be looked for are not reported as missing", "[weights]") {
  const TempDir dir(TempDir::in_memory());
  mgpu::tests::make_unreadable(dir.path("loop"));
  for (const char* name : {"loop", "loop/inside"})
    CHECK(mgpu::tests::fails_for_now([&] { Weights(dir.path(name)); }));
  mgpu::tests::make_unreadable(dir.path("pytorch_model.bin"));
  CHECK(mgpu::tests::fails_for_now([&] { Weights(dir.root()); }));
}
