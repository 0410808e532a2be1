#include "runtime/checkpoint/final_model.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using mgpu::tests::TempDir;
namespace fs = std::filesystem;

namespace {

using FileNames = std::vector<std::string>;

FileNames file_names_in(const fs::path& folder) {
  FileNames names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Writes weights that all have the value `number`, in `shards` files, and a configuration with it.
void write_model(const std::string& folder, const std::string& stem, int number, int shards) {
  fs::create_directories(folder);
  std::vector<TensorPlan> plan;
  for (int i = 0; i < shards; ++i) plan.push_back({std::to_string(i), DType::u8, {1000}});
  WeightsWriter writer(folder, plan, 1000, stem);
  const std::vector<std::byte> bytes(1000, static_cast<std::byte>(number));
  for (int i = 0; i < shards; ++i) writer.write(std::to_string(i), bytes);
  writer.finish();
  write_file(folder + (stem == "model" ? "/config.json" : "/adapter_config.json"),
             std::to_string(number));
}

void publish(const std::string& folder, const std::string& stem, int number, int shards,
             const std::string& subfolder = "", const FinalModelDraft::Replaced& replaced = {}) {
  FinalModelDraft draft(folder);
  write_model(draft.path() + subfolder, stem, number, shards);
  write_file(draft.path() + "/tokenizer.json", std::to_string(number));
  draft.publish(replaced);
}

// Whether a folder has the model `stem`: as programs see it, a configuration and weights. They must
// be those of one model.
bool has_one_model(const std::string& folder, const std::string& stem) {
  const auto config = folder + (stem == "model" ? "/config.json" : "/adapter_config.json");
  if (!fs::exists(config)) return false;
  const auto number = std::stoi(read_file(config, 100));
  CHECK(std::stoi(read_file(folder + "/tokenizer.json", 100)) == number);
  const Weights weights(folder, stem);
  CHECK(weights.names().size() == static_cast<std::size_t>(number % 3 + 1));
  for (const auto& name : weights.names())
    CHECK(weights.get(name).bytes.front() == static_cast<std::byte>(number));
  return true;
}

[[noreturn]] void publish_for_ever(const std::string& folder, int told) {
  for (int number = 0;; number = (number + 1) % 100) {
    publish(folder, number % 5 == 4 ? "adapter_model" : "model", number, number % 3 + 1);
    if (::write(told, "x", 1) != 1) ::_exit(1);
  }
}

}  // namespace

TEST_CASE("whenever a program is killed, the folder has one whole model or none",
          "[final_model][fork]") {
  // A kill between two shards once left new and old shards under the old index.
  const TempDir dir(TempDir::in_memory());
  std::mt19937 random(20261123);
  int whole = 0, published = 0;
  for (int round = 0; round < 60; ++round) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t publisher = ::fork();
    if (publisher == 0) publish_for_ever(dir.root(), ends[1]);
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6'000));
    ::kill(publisher, SIGKILL);
    ::waitpid(publisher, nullptr, 0);
    for (char c = 0; ::read(ends[0], &c, 1) == 1;) ++published;
    ::close(ends[0]);
    CAPTURE(round);
    const bool model = has_one_model(dir.root(), "model");
    const bool adapter = has_one_model(dir.root(), "adapter_model");
    CHECK_FALSE((model && adapter));
    whole += model || adapter ? 1 : 0;
  }
  CHECK(published > 20);  // it was not killed before it had published anything
  CHECK(whole > 0);
  remove_unfinished_saves(dir.root());
  for (const auto& name : file_names_in(dir.root())) CHECK_FALSE(name.starts_with("."));
}

TEST_CASE("a new model leaves nothing of the old one", "[final_model]") {
  const TempDir dir(TempDir::in_memory());
  publish(dir.root(), "model", 2, 3);
  write_file(dir.path("chat_template.jinja"), "old");
  write_file(dir.path("generation_config.json"), "{}");
  write_file(dir.path("metrics.jsonl"), "");
  write_file(dir.path("model-card.safetensors"), "");
  SECTION("an adapter in place of a model in shards") {
    publish(dir.root(), "adapter_model", 3, 1);
    CHECK(file_names_in(dir.root()) == FileNames{"adapter_config.json", "adapter_model.safetensors",
                                                 "metrics.jsonl", "model-card.safetensors",
                                                 "tokenizer.json"});
  }
  SECTION("a model with fewer shards") {
    publish(dir.root(), "model", 3, 1);
    CHECK(file_names_in(dir.root()) == FileNames{"config.json", "metrics.jsonl",
                                                 "model-card.safetensors", "model.safetensors",
                                                 "tokenizer.json"});
  }
  SECTION("a model in place of an adapter") {
    publish(dir.root(), "adapter_model", 3, 1);
    publish(dir.root(), "model", 3, 1);
    CHECK_FALSE(fs::exists(dir.path("adapter_config.json")));
    CHECK_FALSE(fs::exists(dir.path("adapter_model.safetensors")));
  }
}

TEST_CASE("an adapter with a name replaces only the one of this name", "[final_model]") {
  const TempDir dir(TempDir::in_memory());
  publish(dir.root(), "adapter_model", 1, 2);
  const FinalModelDraft::Replaced only_named{.whole = true, .adapter = false};
  publish(dir.root(), "adapter_model", 4, 2, "/second", only_named);
  publish(dir.root(), "adapter_model", 3, 1, "/second", only_named);
  CHECK(file_names_in(dir.path("second")) ==
        FileNames{"adapter_config.json", "adapter_model.safetensors"});
  CHECK(Weights(dir.root(), "adapter_model").names().size() == 2);
}

TEST_CASE("an adapter can be saved beside its base model", "[final_model]") {
  const TempDir dir(TempDir::in_memory());
  publish(dir.root(), "model", 2, 3);
  write_file(dir.path("chat_template.jinja"), "of the base model");
  publish(dir.root(), "adapter_model", 3, 1, "", {.whole = false, .adapter = true});
  CHECK(Weights(dir.root()).names().size() == 3);
  CHECK(Weights(dir.root(), "adapter_model").names().size() == 1);
  CHECK(fs::exists(dir.path("chat_template.jinja")));
}

TEST_CASE("a draft of a model that is not published leaves the old one", "[final_model]") {
  const TempDir dir(TempDir::in_memory());
  publish(dir.root(), "model", 2, 3);
  const auto before = file_names_in(dir.root());
  {
    const FinalModelDraft draft(dir.root());
    write_model(draft.path(), "model", 3, 1);
  }
  CHECK(file_names_in(dir.root()) == before);
  CHECK(has_one_model(dir.root(), "model"));
}
