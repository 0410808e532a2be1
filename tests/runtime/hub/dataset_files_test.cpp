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
    auto found = split_files(dir.root(), "o/d", subset, split);
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
    CHECK_THROWS_WITH(folder.files("test"),
                      "dataset o/d has no JSONL file of the split test; it has b.jsonl, "
                      "data/a.jsonl");
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
                    "dataset o/d has no JSONL file of the split validation; it has train, test");
}

TEST_CASE("a card that cannot be read counts as none", "[hub]") {
  const Folder folder;
  folder.add({"a.jsonl"});
  const std::string card = GENERATE("", "---\n", "---\nconfigs: [\n---\n", "---\nconfigs: 1\n---\n",
                                    "---\n- a\n---\n", "text");
  put(folder.dir.root() / "README.md", card);
  CHECK(folder.files() == Files{"a.jsonl"});
}

TEST_CASE("a folder without JSONL has no rows", "[hub]") {
  const Folder folder;
  folder.add({"data/train.parquet", "README.md"});
  CHECK_FALSE(has_rows(folder.dir.root()));
  folder.add({"data/train.jsonl"});
  CHECK(has_rows(folder.dir.root()));
}
