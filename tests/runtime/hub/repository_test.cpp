#include "runtime/hub/repository.hpp"

#include <unistd.h>

#include "tests/runtime/hub/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::hub;
using namespace mgpu::tests;
namespace fs = std::filesystem;

TEST_CASE("only what has the form of a name and is no path is a name", "[hub]") {
  for (const char* name : {"Qwen/Qwen2.5-7B-Instruct", "tatsu-lab/alpaca", "o/n_1"}) {
    CHECK(is_model_name(name));
    CHECK(is_dataset_name(name));
  }
  CHECK(is_dataset_name("imdb"));
  CHECK_FALSE(is_model_name("imdb"));
  for (const char* path : {"", "/a/b", "./a", "../a", "a/b/c", "data/train.jsonl", "rows.json",
                           "o/n.parquet", "a b/c", "cmd:x/y", "x/y.py:f", "https://h/x"}) {
    CAPTURE(path);
    CHECK_FALSE(is_model_name(path));
    CHECK_FALSE(is_dataset_name(path));
  }
}

TEST_CASE("a mistyped path in a folder that exists is not a name", "[hub]") {
  const TempDir dir(TempDir::in_memory());
  const auto before = fs::current_path();
  fs::current_path(dir.root());
  fs::create_directories("models/qwen");
  CHECK_FALSE(is_model_name("models/qwen"));
  CHECK_FALSE(is_model_name("models/qwne"));
  CHECK_FALSE(is_dataset_name("models"));
  CHECK(looks_like_model("models/qwne"));
  CHECK(is_model_name("other/qwen"));
  fs::current_path(before);
}

TEST_CASE("a model of ModelScope is found in each layout of its cache", "[hub]") {
  const TempDir dir(TempDir::in_memory());
  const ScopedVariable cache("MODELSCOPE_CACHE", dir.root().string());
  const Repository model{.site = Site::modelscope, .name = "Qwen/Qwen2.5-7B"};
  CHECK(cached_folder(model).empty());
  const std::string folder = GENERATE("models/Qwen--Qwen2.5-7B/snapshots/master",
                                      "models/Qwen/Qwen2___5-7B", "hub/models/Qwen/Qwen2___5-7B");
  put(dir.root() / folder / "config.json", "{}");
  CHECK(cached_folder(model) == dir.root() / folder);
  CHECK(missing_file({.part = Part::settings}, dir.root() / folder) == "tokenizer.json");
  CHECK(
      missing_file({.part = Part::settings, .own_tokenizer = false}, dir.root() / folder).empty());
  auto revised = model;
  revised.revision = "v2";
  CHECK(cached_folder(revised).empty());
}

TEST_CASE("the command that downloads a repository names its kind and revision", "[hub]") {
  CHECK(download_command({.name = "o/n"}) == "hf download o/n");
  CHECK(download_command({.part = Part::rows, .name = "d", .revision = "v2"}) ==
        "hf download d --repo-type dataset --revision v2");
  CHECK(download_command({.site = Site::modelscope, .name = "o/n"}) ==
        "modelscope download --model o/n");
}
