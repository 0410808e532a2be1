#include "runtime/checkpoint/file_images.hpp"

#include <algorithm>
#include <filesystem>
#include <stop_token>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

std::vector<std::byte> bytes_like(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13 & 0xFF);
  return bytes;
}

std::size_t files_in(const std::string& folder) {
  const std::filesystem::recursive_directory_iterator files(folder);
  return static_cast<std::size_t>(std::count_if(
      begin(files), end(files), [](const auto& file) { return !file.is_directory(); }));
}

}  // namespace

TEST_CASE("files written by several threads have the checksums of their bytes", "[file_images]") {
  const TempDir dir(TempDir::in_memory());
  const auto large = bytes_like(static_cast<std::size_t>(2 * kDigestBlock) + 12'345);
  const auto small = bytes_like(3'000'001);
  const auto threads = GENERATE(1, 3);
  const auto records =
      write_images(dir.root(), {{"state/large", large}, {"small", small}, {"empty", {}}}, threads);
  REQUIRE(records);
  REQUIRE(records->size() == 3);
  for (const auto& record : *records) CHECK(record == record_of(dir.root(), record.name));
  CHECK((*records)[0].digest.size() == 3 * 16);
  CHECK(files_in(dir.root()) == 3);
}

TEST_CASE("a stop leaves none of the files behind", "[file_images]") {
  const TempDir dir(TempDir::in_memory());
  const auto bytes = bytes_like(5'000'000);
  std::stop_source stop;
  stop.request_stop();
  CHECK_FALSE(write_images(dir.root(), {{"a", bytes}, {"b/c", bytes}}, 2, stop.get_token()));
  CHECK(files_in(dir.root()) == 0);
}

TEST_CASE("a file that cannot be created is named", "[file_images]") {
  const TempDir dir(TempDir::in_memory());
  const auto bytes = bytes_like(1'000);
  std::filesystem::create_directories(dir.path("b/taken"));
  write_file(dir.path("b/taken/file"), "x");
  CHECK_THROWS_WITH(write_images(dir.root(), {{"a", bytes}, {"b/taken", bytes}}, 2),
                    Contains("cannot create") && Contains("b/taken"));
}

TEST_CASE("a folder that is gone does not appear again", "[file_images]") {
  const TempDir dir(TempDir::in_memory());
  const auto bytes = bytes_like(10);
  const std::string name = GENERATE("a", "b/c");
  CHECK_THROWS_WITH(write_images(dir.path("gone"), {{name, bytes}}, 1),
                    Contains("cannot create") && Contains("gone"));
  CHECK_FALSE(std::filesystem::exists(dir.path("gone")));
}

TEST_CASE("the images of a model's files are what the writer of weights writes", "[file_images]") {
  const TempDir dir(TempDir::in_memory());
  const std::vector<TensorPlan> plan{
      {"a", DType::bf16, {300}}, {"b", DType::f32, {7, 9}}, {"c", DType::u8, {11}}};
  const auto bytes = bytes_like(1'000);
  WeightsWriter writer(dir.root(), plan, 700);
  std::filesystem::create_directories(dir.path("images"));
  const auto files = weights_files(plan, 700);
  REQUIRE(files.size() == 2);
  std::vector<std::vector<std::byte>> contents;
  for (const auto& file : files) {
    const auto planned = plan_file(file.name, file.tensors);
    auto& content = contents.emplace_back(planned.size);
    std::ranges::copy(bytes_of(planned.header), content.begin());
    for (const auto& [tensor, begin, end] : planned.tensors) {
      const auto value = std::span(bytes).first(end - begin);
      writer.write(tensor.name, value);
      std::ranges::copy(value, content.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
  auto written = writer.finish();
  const auto images = write_images(dir.path("images"),
                                   {{files[0].name, contents[0]}, {files[1].name, contents[1]}}, 2);
  REQUIRE(images);
  CHECK(written.back().name == weight_index_name("model"));
  CHECK(read_file(dir.path(written.back().name), 10'000) == weight_index_text(files));
  written.pop_back();
  CHECK(*images == written);
}
