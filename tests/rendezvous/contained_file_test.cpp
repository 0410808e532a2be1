#include "rendezvous/base/contained_file.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/passing_error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::rendezvous;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("files of a folder are read, also through links within it", "[contained]") {
  const TempDir dir;
  const auto folder = dir.path("model");
  write(folder + "/vocab.json", "{}");
  write(folder + "/more/x.jinja", "template");
  fs::create_symlink("vocab.json", folder + "/link");
  CHECK(read_contained_file(folder, "vocab.json", 2) == "{}");
  CHECK(read_contained_file(folder, "more/x.jinja", 100) == "template");
  CHECK(read_contained_file(folder, "link", 100) == "{}");
  fs::create_directory_symlink(folder, dir.path("alias"));
  CHECK(read_contained_file(dir.path("alias"), "vocab.json", 100) == "{}");
}

TEST_CASE("a snapshot's links lead to blobs of the same model", "[contained]") {
  const TempDir dir;
  const auto model = dir.path("hub/models--org--name"), other = dir.path("hub/models--org--secret");
  const auto folder = model + "/snapshots/0123";
  write(model + "/blobs/abc", "{}");
  write(other + "/blobs/abc", "secret");
  fs::create_directories(folder);
  fs::create_symlink("../../blobs/abc", folder + "/vocab.json");
  fs::create_symlink("../../../models--org--secret/blobs/abc", folder + "/merges.txt");
  fs::create_symlink("../../blobs/../refs", folder + "/refs");
  CHECK(read_contained_file(folder, "vocab.json", 100) == "{}");
  CHECK_THROWS_WITH(read_contained_file(folder, "merges.txt", 100), Contains("it is a link to"));
  CHECK_THROWS_AS(read_contained_file(folder, "refs", 100), std::runtime_error);
}

TEST_CASE("a blob that repositories of a cache share was refused as a link to outside",
          "[contained]") {
  const TempDir dir;
  const auto model = dir.path("hub/models--org--name"), folder = model + "/snapshots/0123";
  write(dir.path("hub/blobs/ab/abcd"), "{}");
  fs::create_directories(folder);
  fs::create_directories(model + "/blobs");
  fs::create_symlink("../../blobs/ab/abcd", model + "/blobs/abc");
  fs::create_symlink("../../blobs/abc", folder + "/tokenizer.json");
  CHECK(read_contained_file(folder, "tokenizer.json", 100) == "{}");
}

TEST_CASE("a model's folder cannot show us other files", "[contained]") {
  const TempDir dir;
  const auto folder = dir.path("model");
  write(dir.path("secret"), "secret");
  write(dir.path("model-2/secret"), "secret");
  fs::create_directories(folder);
  fs::create_symlink(dir.path("secret"), folder + "/absolute");
  fs::create_symlink("../secret", folder + "/relative");
  fs::create_symlink("../model-2/secret", folder + "/sibling");
  fs::create_directory_symlink("..", folder + "/up");
  for (const char* name : {"absolute", "relative", "sibling", "up/secret", "../secret"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH(read_contained_file(folder, name, 100),
                      Contains("outside the folder; replace it with a copy") && Contains(name));
  }
}

TEST_CASE("special and large files of a model's folder are refused in one line", "[contained]") {
  const TempDir dir;
  const auto folder = dir.path("model");
  write(folder + "/large", std::string(101, 'x'));
  REQUIRE(::mkfifo((folder + "/pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_contained_file(folder, "large", 100),
                    Contains("large: it has more than 100 bytes"));
  CHECK_THROWS_WITH(read_contained_file(folder, "pipe", 100), Contains("not a regular file"));
  CHECK_THROWS_WITH(read_contained_file(folder, ".", 100), Contains("not a regular file"));
  CHECK_THROWS_WITH(read_contained_file(folder, "none", 100), Contains("No such file"));
  fs::create_symlink("/dev/zero", folder + "/zero");
  CHECK_THROWS_WITH(read_contained_file(folder, "zero", 100), Contains("outside the folder"));
}

TEST_CASE("a file that is missing or not allowed is wrong input", "[contained]") {
  const TempDir dir;
  write(dir.path("model/a"), "long");
  fs::create_symlink("/etc/passwd", dir.path("model/outside"));
  for (const char* name : {"missing", "a/b", "a", "outside"})
    CHECK_THROWS_AS(read_contained_file(dir.path("model"), name, 1), InputError);
}

TEST_CASE("an error with more context stays wrong input, or what may pass", "[contained]") {
  CHECK_THROWS_AS(throw_like(InputError("a"), "b: a"), InputError);
  try {
    throw_like(std::runtime_error("a"), "b: a");
  } catch (const InputError&) {
    FAIL();
  } catch (const std::runtime_error& e) {
    CHECK(e.what() == std::string("b: a"));
  }
}

TEST_CASE("an error with more context stays the error of a system call", "[contained]") {
  try {
    throw_like(std::system_error(ESTALE, std::generic_category(), "a"), "b: a");
  } catch (const std::runtime_error& e) {
    CHECK(e.what() == std::string("b: a"));
    CHECK(is_passing(e));
  }
}

TEST_CASE("only an error that shows a wrong path does not pass", "[contained]") {
  const auto passing = [](int number) {
    return is_passing(std::system_error(number, std::generic_category()));
  };
  for (const int number : {ESTALE, EIO, ENOMEM, EMFILE, ETIMEDOUT}) CHECK(passing(number));
  for (const int number : {ENOENT, ENOTDIR, EACCES, EISDIR, ELOOP, ENAMETOOLONG})
    CHECK_FALSE(passing(number));
  CHECK_FALSE(is_passing(std::runtime_error("invalid YAML")));
  try {
    throw_errno("cannot open a", ESTALE);
  } catch (const std::runtime_error& e) {
    CHECK(e.what() == "cannot open a: " + error_text(ESTALE));
    CHECK(is_passing(e));
  }
}

TEST_CASE("only what is certainly missing is not there", "[contained]") {
  const TempDir dir;
  write(dir.path("file"), "");
  fs::create_directory_symlink(dir.path("gone"), dir.path("link"));
  fs::create_directory_symlink("loop", dir.path("loop"));
  CHECK(is_there(dir.path("file")));
  CHECK(is_regular_file(dir.path("file")));
  CHECK_FALSE(is_folder(dir.path("file")));
  CHECK(is_folder(dir.root()));
  for (const char* name : {"gone", "file/inside", "link"}) CHECK_FALSE(is_there(dir.path(name)));
  CHECK(is_listed(dir.path("link")));
  CHECK_FALSE(is_listed(dir.path("gone")));
  for (const auto& name : {std::string("loop"), std::string(300, 'x')}) {
    CHECK_THROWS_AS(is_there(dir.path(name)), std::system_error);
    CHECK_THROWS_AS(is_folder(dir.path(name)), std::system_error);
  }
}
