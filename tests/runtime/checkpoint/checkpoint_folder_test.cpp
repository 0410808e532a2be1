#include "runtime/checkpoint/checkpoint_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/passing_failure.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
namespace fs = std::filesystem;

namespace {

std::string save(const TempDir& dir, std::int64_t step, const std::string& text = "weights") {
  CheckpointDraft draft(dir.root(), step);
  write_file(draft.path() + "/a", text);
  fs::create_directory(draft.path() + "/deep");
  write_file(draft.path() + "/deep/b", "state");
  return draft.publish({}, {{"mgpu-train", "0.1.0"}});
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void flip_bit(const std::string& path, std::size_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const char c = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(c);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a published checkpoint is complete and leaves no other files", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  const std::string path = save(dir, 8);
  CHECK(names_in(dir.root()) == Names{"checkpoint-8"});
  CHECK(names_in(path) == Names{"a", "deep", "manifest.json"});
  const Manifest manifest = verify(path, 3);
  CHECK(manifest.step == 8);
  CHECK(manifest.versions.at("mgpu-train") == "0.1.0");
  REQUIRE(manifest.files.size() == 2);
  CHECK(manifest.files[1] == FileRecord{"deep/b", 5, digest_of(bytes_of("state"))});
}

TEST_CASE("a draft that is not published leaves nothing", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  {
    const CheckpointDraft draft(dir.root(), 1);
    write_file(draft.path() + "/a", "x");
  }
  CHECK(names_in(dir.root()).empty());
}

TEST_CASE("a checkpoint of the same step is replaced completely", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  save(dir, 8, "older");
  const std::string path = save(dir, 8, "newer");
  CHECK(names_in(dir.root()) == Names{"checkpoint-8"});
  CHECK(read_file(path + "/a", 100) == "newer");
}

TEST_CASE("the records of the writers are checked against the files", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  CheckpointDraft draft(dir.root(), 1);
  write_file(draft.path() + "/a", "xyz");
  CHECK_THROWS_WITH(draft.publish({{"rank3", 1, ""}}, {}),
                    Contains("rank3 is missing; all ranks must write to the same file system"));
  CHECK_THROWS_WITH(draft.publish({{"a", 4, ""}}, {}), Contains("a has 3 bytes, but 4 were"));
  CHECK_THROWS_WITH(draft.publish({{"a", 3, ""}, {"a", 3, ""}}, {}), Contains("two writers of a"));
  const OutputFile unfinished(draft.path() + "/b");
  CHECK_THROWS_WITH(draft.publish({}, {}), Contains("b.tmp-") && Contains("did not finish"));
}

TEST_CASE("any flipped bit of a checkpoint is detected and the file is named", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  const std::string path = save(dir, 8);
  SECTION("in a file") {
    flip_bit(path + "/deep/b", GENERATE(0u, 4u));
    CHECK_THROWS_WITH(verify(path), Contains("deep/b has changed since it was saved"));
  }
  SECTION("in the manifest") {
    const auto size = fs::file_size(path + "/manifest.json");
    const std::string before = read_file(path + "/manifest.json", 10000);
    for (std::size_t at = 0; at + 1 < size; ++at) {
      flip_bit(path + "/manifest.json", at);
      if (std::isspace(static_cast<unsigned char>(before[at]))) {
        // Whitespace does not matter: such a file is either the same manifest or not JSON.
      } else {
        CAPTURE(at, before[at]);
        CHECK_THROWS_WITH(verify(path), Contains("manifest.json"));
      }
      flip_bit(path + "/manifest.json", at);
    }
    CHECK(verify(path).step == 8);
  }
  SECTION("a file is cut short") {
    fs::resize_file(path + "/a", 3);
    CHECK_THROWS_WITH(verify(path), Contains("/a has 3 bytes, but 7 were saved"));
  }
  SECTION("a file is gone") {
    fs::remove(path + "/a");
    CHECK_THROWS_WITH(verify(path), Contains("/a: No such file"));
  }
}

TEST_CASE("a flipped bit in any block of a large file is detected", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  CheckpointDraft draft(dir.root(), 8);
  {
    OutputFile file(draft.path() + "/large");  // of zeros, and one byte in a second block
    file.write_at(kDigestBlock, bytes_of("x"));
    file.commit();
  }
  const std::string path = draft.publish({}, {});
  CHECK(verify(path, 4).files[0].digest.size() == 2 * 16);
  flip_bit(path + "/large", GENERATE(values<std::size_t>({0, kDigestBlock - 1, kDigestBlock})));
  CHECK_THROWS_WITH(verify(path, 4), Contains("/large has changed since it was saved (xxh64 of "
                                              "bytes "));
}

TEST_CASE("a mistyped checkpoint is not taken for one whose save did not finish", "[checkpoint]") {
  const TempDir dir;
  CHECK_THROWS_WITH(verify(dir.path("nope")),
                    Catch::Matchers::Equals("there is no checkpoint " + dir.path("nope")));
  CHECK_THROWS_WITH(verify(dir.root()), Contains("its save did not finish"));
}

TEST_CASE("a large file with one checksum, as in version 1, is verified", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  const FileRecord record{"large", kDigestBlock + 1, "d24ec4f1a98c6e5b"};  // of other bytes
  {
    OutputFile file(dir.path("large"));
    file.write_at(kDigestBlock, bytes_of("x"));
    file.commit();
  }
  write_file(dir.path(kManifestName), manifest_text({.step = 1, .files = {record}}));
  CHECK_THAT(read_file(dir.path(kManifestName), 1000), Contains("\"version\": 1"));
  CHECK_THROWS_WITH(verify(dir.root(), 2),
                    Contains("large has changed since it was saved (xxh64 is "));
}

TEST_CASE("a manifest with names outside the folder is rejected", "[checkpoint]") {
  const std::string name = GENERATE("../a", "/a", "", "a/../../b", "..", "a/", "./a");
  CAPTURE(name);
  const std::string text = manifest_text({.step = 1, .files = {{name, 1, "x"}}});
  CHECK_THROWS_WITH(parse_manifest(text, "m"), Contains("is not a valid file name"));
}

TEST_CASE("the newest complete checkpoint is found, with the reasons why newer ones were skipped",
          "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  CHECK(find_newest_complete(dir.root()).path.empty());
  CHECK(find_newest_complete(dir.path("gone")).path.empty());
  save(dir, 9);
  save(dir, 10);
  CHECK(find_newest_complete(dir.root()).step == 10);

  flip_bit(save(dir, 100) + "/a", 1);
  fs::create_directory(dir.path("checkpoint-200"));
  fs::rename(save(dir, 300), dir.path("checkpoint-400"));
  fs::create_directory(dir.path("checkpoint-x"));
  fs::create_directory(dir.path("checkpoint--5"));
  write_file(dir.path("checkpoint-500"), "no folder");
  const auto found = find_newest_complete(dir.root());
  CHECK(found.step == 10);
  REQUIRE(found.skipped.size() == 3);
  CHECK_THAT(found.skipped[0], Contains("checkpoint-400 is skipped: its manifest is of step 300"));
  CHECK_THAT(found.skipped[1], Contains("checkpoint-200 is skipped") && Contains("no manifest"));
  CHECK_THAT(found.skipped[2], Contains("checkpoint-100 is skipped") && Contains("has changed"));
}

TEST_CASE("a checkpoint that the caller cannot use is skipped with the reason", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  save(dir, 9);
  save(dir, 10);
  const auto found = find_newest_complete(dir.root(), 1, [](const Manifest& manifest) {
    if (manifest.step == 10) throw std::runtime_error("it is not mine");
  });
  CHECK(found.step == 9);
  CHECK(found.skipped == Names{dir.path("checkpoint-10") + " is skipped: it is not mine"});
}

TEST_CASE("a checkpoint that a killed save renamed to .old is found", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  fs::rename(save(dir, 8), dir.path(".checkpoint-8.old"));
  CHECK(find_newest_complete(dir.root()).path == dir.path(".checkpoint-8.old"));
  save(dir, 8);
  CHECK(find_newest_complete(dir.root()).path == dir.path("checkpoint-8"));
}

TEST_CASE("rotation keeps the newest, the best and folders of other programs", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  for (const int step : {9, 10, 20, 100}) save(dir, step);
  fs::create_directory(dir.path("checkpoint-1"));
  SECTION("no limit") {
    CHECK(rotate(dir.root(), 0).empty());
  }
  SECTION("two") {
    CHECK(rotate(dir.root(), 2).size() == 2);
    CHECK(names_in(dir.root()) == Names{"checkpoint-1", "checkpoint-100", "checkpoint-20"});
  }
  SECTION("two with an old best") {
    rotate(dir.root(), 2, {9});
    CHECK(names_in(dir.root()) == Names{"checkpoint-1", "checkpoint-100", "checkpoint-9"});
  }
  SECTION("one with an old best") {
    rotate(dir.root(), 1, {10});
    CHECK(names_in(dir.root()) == Names{"checkpoint-1", "checkpoint-10", "checkpoint-100"});
  }
  SECTION("one with an old best and a new save of an earlier step than the newest") {
    rotate(dir.root(), 1, {10, 20});
    CHECK(names_in(dir.root()) ==
          Names{"checkpoint-1", "checkpoint-10", "checkpoint-100", "checkpoint-20"});
  }
  SECTION("one") {
    rotate(dir.root(), 1);
    CHECK(names_in(dir.root()) == Names{"checkpoint-1", "checkpoint-100"});
  }
}

TEST_CASE("a checkpoint that cannot be removed does not keep newer ones from being removed",
          "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  for (const int step : {9, 10, 20, 100}) save(dir, step);
  // The names that it could get before it is removed belong to files.
  for (int i = 0; i < 5000; ++i)
    std::ofstream(dir.path(fmt::format(".checkpoint-9.tmp-{}-{}", ::getpid(), i)));
  CHECK_THROWS_WITH(rotate(dir.root(), 1), Contains("cannot remove " + dir.path("checkpoint-9")));
  std::vector<std::string> left = names_in(dir.root());
  std::erase_if(left, [](const auto& name) { return name.starts_with('.'); });
  CHECK(left == Names{"checkpoint-100", "checkpoint-9"});
}

TEST_CASE("only files that killed saves left behind are removed", "[checkpoint]") {
  const TempDir dir(TempDir::in_memory());
  save(dir, 1);
  fs::create_directories(dir.path(".checkpoint-2.tmp-123-0/deep"));
  write_file(dir.path(".model.safetensors.tmp-123-4"), "a file on its way into output_dir");
  fs::create_directory(dir.path(".hidden"));
  for (const char* name : {".x.tmp-", ".x.tmp-1", ".x.tmp-1-y", "x.tmp-1-2", ".tmp-1-2"})
    write_file(dir.path(name), "somebody's");
  auto gone = remove_unfinished_saves(dir.root());
  std::sort(gone.begin(), gone.end());
  CHECK(gone ==
        Names{dir.path(".checkpoint-2.tmp-123-0"), dir.path(".model.safetensors.tmp-123-4")});
  CHECK(names_in(dir.root()) == Names{".hidden", ".tmp-1-2", ".x.tmp-", ".x.tmp-1", ".x.tmp-1-y",
                                      "checkpoint-1", "x.tmp-1-2"});
}

TEST_CASE("a checkpoint that cannot be looked for is not reported as missing", "[checkpoint]") {
  const TempDir dir;
  mgpu::tests::make_unreadable(dir.path("checkpoint-3"));
  CHECK(mgpu::tests::fails_for_now([&] { read_manifest(dir.path("checkpoint-3")); }));
  mgpu::tests::make_unreadable(dir.path("manifest.json"));
  CHECK(mgpu::tests::fails_for_now([&] { read_manifest(dir.root()); }));
}
