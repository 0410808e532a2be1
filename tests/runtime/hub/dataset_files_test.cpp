#include "runtime/hub/dataset_files.hpp"

#include "tests/runtime/hub/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::hub;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Folder {
  TempDir dir{TempDir::in_memory()};

  void add(std::initializer_list<const char*> names) const {
    for (const char* name : names) put(dir.root() / name, "{}\n");
  }
  // The files of a split, relative to the folder.
  std::vector<std::string> files(const std::string& split = "train",
                                 const std::string& subset = "") const {
    auto found = split_files(dir.root(), {.dataset = "o/d", .subset = subset, .split = split});
    for (auto& file : found) file = fs::path(file).lexically_relative(dir.root()).string();
    return found;
  }
};

using Files = std::vector<std::string>;

}  // namespace

TEST_CASE("without a list the names of files decide which split they belong to", "[hub]") {
  const Folder folder;
  SECTION("no file names a split: all are for training") {
    folder.add({"b.jsonl", "data/a.jsonl", "dataset_infos.json", "README.md"});
    CHECK(folder.files() == Files{"b.jsonl", "data/a.jsonl"});
    CHECK_THROWS_WITH(folder.files("test"), "dataset o/d has no split test; it has train");
  }
  SECTION("files and folders with the name of a split") {
    folder.add({"train-00001.jsonl", "train-00000.jsonl", "data/test/x.jsonl", "dev.jsonl",
                "contest.jsonl"});
    CHECK(folder.files() == Files{"train-00000.jsonl", "train-00001.jsonl"});
    CHECK(folder.files("test") == Files{"data/test/x.jsonl"});
    CHECK(folder.files("validation") == Files{"dev.jsonl"});
  }
}

TEST_CASE("the list in a dataset's card decides which files a split has", "[hub]") {
  const Folder folder;
  folder.add({"main/train.jsonl", "main/test.jsonl", "socratic/train.jsonl"});
  put(folder.dir.root() / "README.md",
      "---\nlicense: mit\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n"
      "    path: main/train*\n  - split: test\n    path: [main/test.jsonl]\n"
      "- config_name: socratic\n  data_files: socratic/*\n---\n# Card\n");
  CHECK(folder.files("train", "main") == Files{"main/train.jsonl"});
  CHECK(folder.files("test", "main") == Files{"main/test.jsonl"});
  CHECK(folder.files("train", "socratic") == Files{"socratic/train.jsonl"});
  CHECK_THROWS_WITH(folder.files(),
                    "dataset o/d has the subsets main, socratic; choose one with the key subset "
                    "next to path");
  CHECK_THROWS_WITH(folder.files("train", "other"),
                    "dataset o/d has no subset other; it has main, socratic");
  CHECK_THROWS_WITH(folder.files("validation", "main"),
                    "dataset o/d has no split validation; it has train, test");
}

TEST_CASE("a card that cannot be read counts as none", "[hub]") {
  const Folder folder;
  folder.add({"a.jsonl"});
  const std::string card = GENERATE("", "---\n", "---\nconfigs: [\n---\n", "---\nconfigs: 1\n---\n",
                                    "---\n- a\n---\n", "text");
  put(folder.dir.root() / "README.md", card);
  CHECK(folder.files() == Files{"a.jsonl"});
}

TEST_CASE("of files in several formats the most common one counts", "[hub]") {
  const Folder folder;
  folder.add({"train-0.parquet", "train-1.parquet", "train.csv", "meta/train.json"});
  CHECK(folder.files() == Files{"train-0.parquet", "train-1.parquet"});
}

TEST_CASE("data_dir and data_files select files of a folder", "[hub]") {
  const Folder folder;
  folder.add({"a/train.jsonl.gz", "b/train.jsonl", "b/test.jsonl", "c/x.csv"});
  const auto files = [&](RowsRequest request) {
    request.dataset = "o/d";
    auto found = split_files(folder.dir.root(), request);
    for (auto& file : found) file = fs::path(file).lexically_relative(folder.dir.root()).string();
    return found;
  };
  CHECK(files({.data_dir = "b"}) == Files{"b/train.jsonl"});
  CHECK(files({.data_dir = "./"}).size() == 2);
  CHECK(files({.split = "test", .data_dir = "./b/"}) == Files{"b/test.jsonl"});
  CHECK(files({.split = "test", .data_dir = "b/"}) == Files{"b/test.jsonl"});
  CHECK(files({.data_files = {"c/*"}}) == Files{"c/x.csv"});
  CHECK_THROWS_WITH(files({.data_files = {"d/*"}}), Contains("no file matches d/*"));
}

TEST_CASE("a folder without files in a format of rows has none", "[hub]") {
  const Folder folder;
  folder.add({"data/train.bin", "README.md", "dataset_infos.json", "LICENSE.txt"});
  CHECK_FALSE(has_rows(folder.dir.root()));
  folder.add({"data/train.csv.gz"});
  CHECK(has_rows(folder.dir.root()));
}
