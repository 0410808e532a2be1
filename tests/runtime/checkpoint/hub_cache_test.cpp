#include "runtime/checkpoint/hub_cache.hpp"

#include <stdlib.h>

#include <filesystem>

#include "runtime/checkpoint/file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/passing_failure.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
namespace fs = std::filesystem;

namespace {

const std::string kCommit(40, 'a');

// Sets an environment variable while this object lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

// A cache with one model in huggingface_hub's layout: names link to blobs.
struct Cache {
  TempDir dir{TempDir::in_memory()};
  Variable set{"HF_HUB_CACHE", dir.root().string()};
  fs::path repository = dir.root() / "models--org--name";
  fs::path snapshot = repository / "snapshots" / kCommit;

  Cache() {
    fs::create_directories(snapshot);
    fs::create_directories(repository / "refs/refs/pr");
    fs::create_directories(repository / "blobs");
    write_file((repository / "refs/main").string(), kCommit);
    write_file((repository / "refs/refs/pr/1").string(), kCommit + "\n");
    put("config.json", "{}");
    put("model.safetensors", "x");
  }
  void put(const std::string& name, const std::string& text) const {
    write_file((repository / "blobs" / name).string(), text);
    fs::remove(snapshot / name);
    fs::create_symlink("../../blobs/" + name, snapshot / name);
  }
};

}  // namespace

TEST_CASE("the path of a folder resolves to itself", "[hub]") {
  const TempDir dir(TempDir::in_memory());
  CHECK(resolve_model(dir.root()) == dir.root());
  write_file(dir.path("file"), "");
  CHECK_THROWS_WITH(resolve_model(dir.path("file")), Contains("is a file; give the folder"));
  CHECK_THROWS_WITH(resolve_model(dir.path("gone")), Contains("neither a folder nor a Hub id"));
}

TEST_CASE("a Hub id resolves to the snapshot of its revision in the cache", "[hub]") {
  const Cache cache;
  CHECK(resolve_model("org/name", GENERATE(as<std::string>(), "main", "refs/pr/1", kCommit)) ==
        cache.snapshot);
}

TEST_CASE("a mistyped path is not answered with a command that downloads it", "[hub]") {
  const Cache cache;
  const TempDir dir;
  const auto before = fs::current_path();
  fs::current_path(dir.root());
  fs::create_directory("data");
  CHECK_THROWS_WITH(resolve_model("data/model"),
                    "there is no folder data/model, and it is not a name of the Hub, because data "
                    "exists here");
  fs::current_path(before);
}

TEST_CASE("a model that is not in the cache is reported with the download command", "[hub]") {
  const Cache cache;
  CHECK_THROWS_WITH(resolve_model("org/other", "v2"),
                    Contains("org/other is neither a local folder nor in the cache") &&
                        Contains("hf download org/other --revision v2"));
  CHECK_THROWS_WITH(resolve_model("gpt2"), Contains("hf download gpt2 --revision main"));
  CHECK_THROWS_WITH(resolve_model("org/name", "v2"),
                    Contains("revision v2 of org/name is not in the cache") &&
                        Contains("hf download org/name --revision v2"));
  CHECK_THROWS_WITH(resolve_model("org/name", std::string(40, 'b')), Contains("bbbb is not in"));
  write_file((cache.repository / "refs/main").string(), "../../etc");
  CHECK_THROWS_WITH(resolve_model("org/name"), Contains("contains no commit id"));
}

TEST_CASE("an incomplete download is reported", "[hub]") {
  const Cache cache;
  SECTION("a blob is missing") {
    fs::remove(cache.repository / "blobs/model.safetensors");
    CHECK_THROWS_WITH(resolve_model("org/name"),
                      Contains("org/name is incomplete, model.safetensors is missing") &&
                          Contains("finish it: hf download org/name --revision main"));
  }
  SECTION("config.json is missing") {
    fs::remove(cache.snapshot / "config.json");
    CHECK_THROWS_WITH(resolve_model("org/name"), Contains("config.json is missing"));
  }
  SECTION("there are no weights") {
    fs::remove(cache.snapshot / "model.safetensors");
    CHECK_THROWS_WITH(resolve_model("org/name"), Contains("model.safetensors is missing"));
  }
  SECTION("a shard is missing") {
    fs::remove(cache.snapshot / "model.safetensors");
    cache.put("model.safetensors.index.json", R"({"weight_map": {"a": "1", "b": "2"}})");
    cache.put("1", "x");
    CHECK_THROWS_WITH(resolve_model("org/name"), Contains("2 is missing"));
    cache.put("2", "x");
    CHECK(resolve_model("org/name") == cache.snapshot);
  }
  SECTION("the weights of an adapter are missing") {
    cache.put("adapter_config.json", "{}");
    CHECK_THROWS_WITH(resolve_model("org/name"), Contains("adapter_model.safetensors is missing"));
  }
}

TEST_CASE("the configuration of a model needs no other file of it", "[hub]") {
  const Cache cache;
  fs::remove(cache.snapshot / "model.safetensors");
  CHECK(resolve_model_config("org/name") == cache.snapshot);
  CHECK_THROWS_WITH(resolve_model_config("org/other"), Contains("hf download org/other"));
}

TEST_CASE("names and revisions outside the cache are rejected", "[hub]") {
  const Cache cache;
  const std::string name =
      GENERATE("../no-such", "org/../x", "a/b/c", "a/.b", "", "a b", "org/n;ls", "--token/x");
  CHECK_THROWS_WITH(resolve_model(name), Contains("neither a folder nor a Hub id"));
  const std::string revision = GENERATE("../main", "/main", "", "a/../../b", "x;ls", "a b");
  CHECK_THROWS_WITH(resolve_model("org/name", revision),
                    Contains("is not a valid revision of org/name"));
}

TEST_CASE("the cache folder is that of huggingface_hub", "[hub]") {
  const Variable home("HOME", "/home/u"), cache("XDG_CACHE_HOME", ""), hub("HF_HUB_CACHE", "");
  {
    const Variable hf("HF_HOME", "/hf");
    CHECK(hub_cache() == "/hf/hub");
    const Variable other("HF_HUB_CACHE", "/hub");
    CHECK(hub_cache() == "/hub");
  }
  CHECK(hub_cache() == "/home/u/.cache/huggingface/hub");
  const Variable xdg("XDG_CACHE_HOME", "/x");
  CHECK(hub_cache() == "/x/huggingface/hub");
}

TEST_CASE("~ and variables in the path of the cache are expanded as huggingface_hub does",
          "[hub]") {
  const Variable home("HOME", "/home/u"), scratch("SCRATCH_OF_U", "/s"), hub("HF_HUB_CACHE", "");
  const auto with = [](const std::string& path) {
    const Variable hf("HF_HOME", path);
    return hub_cache();
  };
  CHECK(with("~/hf") == "/home/u/hf/hub");
  CHECK(with("$SCRATCH_OF_U/hf") == "/s/hf/hub");
  CHECK(with("/a/${SCRATCH_OF_U}b") == "/a//sb/hub");
  CHECK(with("/a/$NO_SUCH_VARIABLE/${x") == "/a/$NO_SUCH_VARIABLE/${x/hub");
}

TEST_CASE("the snapshot of a dataset is found beside that of a model of the same name", "[hub]") {
  const Cache cache;
  CHECK(find_snapshot(HubKind::model, "org/name", "main") == cache.snapshot);
  CHECK(find_snapshot(HubKind::dataset, "org/name", "main").empty());
  CHECK(find_snapshot(HubKind::model, "org/name", "v2").empty());
  CHECK(hub_repository(HubKind::dataset, "imdb") == cache.dir.root() / "datasets--imdb");
  const auto snapshot = cache.dir.root() / "datasets--imdb/snapshots" / kCommit;
  fs::create_directories(snapshot);
  CHECK(find_snapshot(HubKind::dataset, "imdb", kCommit) == snapshot);
}

TEST_CASE("a folder that cannot be looked for is not reported as missing", "[hub]") {
  const Cache cache;
  const TempDir dir(TempDir::in_memory());
  mgpu::tests::make_unreadable(dir.path("loop"));
  CHECK(mgpu::tests::fails_for_now([&] { resolve_model(dir.path("loop")); }));
  fs::remove_all(cache.snapshot);
  mgpu::tests::make_unreadable(cache.snapshot);
  CHECK(mgpu::tests::fails_for_now([&] { resolve_model("org/name"); }));
  fs::remove(cache.repository / "refs/main");
  mgpu::tests::make_unreadable(cache.repository / "refs/main");
  CHECK(mgpu::tests::fails_for_now([&] { resolve_model("org/name"); }));
}
