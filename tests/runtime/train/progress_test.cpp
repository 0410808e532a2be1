#include "runtime/train/progress.hpp"

#include <filesystem>
#include <memory>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/train/state_pieces.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
using Json = nlohmann::json;

namespace {

Progress some_progress() {
  return {
      .step = 8,
      .epoch = 0.5,
      .global_batch = 16,
      .data_seed = ~std::uint64_t{0},
      .tokens = 4096,
      .updates = 7,
      .loss_scale = LossScaleState{.scale = 1024, .clean_steps = 3, .hysteresis_left = 2},
      .oom =
          OomState{.changes = {"zero_stage: 2"}, .pieces = 4, .oom_count = 1, .jobs = {"c0", "c1"}},
      .gemms = Json::parse(R"({"library": "cuBLASLt 1", "device": "GPU", "products": []})"),
      .best_metric = 1.25,
      .best_step = 4,
      .log_history = Json::parse(R"([{"step": 1, "loss": 2.5}])"),
      .fingerprint = {{"seed", "42"}, {"max_length", "64"}},
      .task_state = Json::parse(R"({"beta": 0.1})")};
}

using Pieces = std::vector<std::pair<std::string, std::int64_t>>;

PieceIndex index_of(const Pieces& pieces, const TempDir& dir,
                    std::vector<std::unique_ptr<mgpu::checkpoint::SafetensorsFile>>& files) {
  std::vector<mgpu::checkpoint::TensorPlan> plan;
  for (const auto& [name, size] : pieces)
    plan.push_back({name, mgpu::checkpoint::DType::u8, {size}});
  mgpu::checkpoint::SafetensorsWriter writer(dir.path("state.safetensors"), plan);
  for (const auto& [name, size] : pieces)
    writer.write(name, std::vector<std::byte>(static_cast<std::size_t>(size)));
  writer.finish();
  files.push_back(
      std::make_unique<mgpu::checkpoint::SafetensorsFile>(dir.path("state.safetensors")));
  return index_pieces(files);
}

}  // namespace

TEST_CASE("a written progress is read back as the same", "[progress]") {
  auto progress = some_progress();
  CHECK(parse_progress(progress_text(progress), "f") == progress);
  progress.best_metric.reset();
  progress.best_step.reset();
  progress.loss_scale.reset();
  progress.oom.reset();
  progress.gemms = nullptr;
  progress.task_state = nullptr;
  progress.fingerprint.clear();
  CHECK(parse_progress(progress_text(progress), "f") == progress);
}

TEST_CASE("a trainer_state.json that cannot be continued is refused with the key", "[progress]") {
  const auto [key, value, why] = GENERATE(table<const char*, Json, const char*>(
      {{"global_step", -1, "f: global_step must be a whole number from 0"},
       {"global_step", 1.5, "f: global_step must be a whole number from 0"},
       {"epoch", "x", "f: epoch must be a number"},
       {"data_seed", -1, "f: data_seed must be a whole number from 0"},
       {"updates", nullptr, "f: updates is missing"},
       {"loss_scale", 8, "f: loss_scale must be an object"},
       {"loss_scale", {{"scale", -1}}, "f: loss_scale: scale must be a number above 0"},
       {"loss_scale", {{"scale", 8}}, "f: loss_scale: clean_steps is missing"},
       {"oom", 8, "f: oom must be an object"},
       {"oom", {{"changes", 1}, {"pieces", 1}}, "f: oom: changes must be"},
       {"oom", {{"pieces", 3}}, "f: oom: pieces must be a power of two"},
       {"best_metric", "x", "f: best_metric must be a number"},
       {"log_history", 1, "f: log_history must be a list"}}));
  CAPTURE(key);
  Json json = Json::parse(progress_text(some_progress()));
  json[key] = value;
  CHECK_THROWS_WITH(parse_progress(json.dump(), "f"), Contains(why));
}

TEST_CASE("a deeply nested trainer_state.json can no longer end a later save", "[progress]") {
  auto text = progress_text(some_progress());
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  text.insert(1, "\"more\": " + deep + ",");
  CHECK_THROWS_WITH(parse_progress(text, "f"), Contains("nested more than"));
}

TEST_CASE("the pieces of a training state are found by their names", "[progress]") {
  const TempDir dir(TempDir::in_memory());
  std::vector<std::unique_ptr<mgpu::checkpoint::SafetensorsFile>> files;
  SECTION("in the order of their elements") {
    const auto index = index_of(
        {{"first/w@4", 3}, {"first/w@0", 4}, {"first_scales/w@0", 2}, {"first_scales/w@1", 2}}, dir,
        files);
    REQUIRE(index.size() == 2);
    const auto& pieces = index.at("first/w");
    REQUIRE(pieces.size() == 2);
    CHECK(pieces[0].begin == 0);
    CHECK(pieces[1].begin == 4);
    CHECK(pieces[1].size == 3);
    CHECK(scales_name("first/w@4") == "first_scales/w@4");
  }
  SECTION("and refused if an element is in two of them") {
    CHECK_THROWS_WITH(index_of({{"first/w@0", 4}, {"first/w@3", 4}}, dir, files),
                      Contains("'first/w': two pieces have element 3"));
  }
  SECTION("and refused if the name has no valid element") {
    const std::string name =
        GENERATE("first/w", "first/w@", "first/w@-1", "first/w@1x", "first/w@9223372036854775807",
                 "first/w@99999999999999999999");
    CHECK_THROWS_WITH(index_of({{name, 2}}, dir, files),
                      Contains("is not a piece of a training state"));
  }
}
