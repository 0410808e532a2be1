#include "launcher/nodes/job_registry.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/launcher/runtime_folder.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using mgpu::tests::RuntimeFolder;
namespace fs = std::filesystem;

TEST_CASE("a registered job is found with its secret or without", "[registry]") {
  const RuntimeFolder folder;
  CHECK_FALSE(find_job("j"));
  const auto secret = GENERATE(std::optional<std::string>("s3 cret"),
                               std::optional<std::string>(""), std::optional<std::string>());
  note_job("j", {"host", 1234, secret});
  const auto found = find_job("j");
  REQUIRE(found);
  CHECK(found->host == "host");
  CHECK(found->port == 1234);
  CHECK(found->secret == secret);
  CHECK_FALSE(find_job("J"));

  struct stat st{};
  REQUIRE(::stat(folder.only_file().c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
  REQUIRE(::stat(folder.ours().c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0700);

  forget_job("j");
  CHECK_FALSE(find_job("j"));
}

TEST_CASE("a folder that others can access is not used for notes, but one of this user's home",
          "[registry]") {
  const RuntimeFolder folder;
  const mgpu::tests::TempDir home;
  const std::string before = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", home.root().c_str(), 1);
  ::chmod(home.root().c_str(), 0755);
  fs::create_directory(folder.ours());
  ::chmod(folder.ours().c_str(), 0755);
  const std::string problem =
      "cannot use " + folder.ours() + ": other users have permissions for it";

  CHECK(registry_folder().problem == problem);
  CHECK(registry_folder().path.starts_with(home.path(".cache/mgpu-run-")));
  note_job("j", {"host", 1234, "s"});
  CHECK(find_job("j"));
  CHECK(fs::is_empty(folder.ours()));
  CHECK((fs::status(registry_folder().path).permissions() & fs::perms(077)) == fs::perms::none);

  ::chmod(home.root().c_str(), 0777);
  CHECK(registry_folder().problem == problem);
  CHECK(registry_folder().path.empty());
  CHECK_FALSE(find_job("j"));
  ::setenv("HOME", before.c_str(), 1);
}

TEST_CASE("any job id can be a file name, and different ids have different files", "[registry]") {
  const RuntimeFolder folder;
  const std::string ids[] = {"a/../../b", ".", "..", "a.b", "a%2eb", "\xc3\xa4 \n", "%", ""};
  int port = 1;
  for (const auto& id : ids) note_job(id, {"h", port++});
  port = 1;
  for (const auto& id : ids) {
    CAPTURE(id);
    const auto found = find_job(id);
    REQUIRE(found);
    CHECK(found->port == port++);
  }
  note_job(std::string(5000, 'x'), {"h", 1});
  CHECK_FALSE(find_job(std::string(5000, 'x')));
}

TEST_CASE("the trace of a leader has the size of its round and how long ranks may run unseen",
          "[registry]") {
  const RuntimeFolder folder;
  trace_leader("j", 7, 4, std::chrono::seconds(35));
  const auto trace = find_leader("j", 7);
  REQUIRE(trace);
  CHECK(trace->nodes == 4);
  CHECK(trace->lease_and_grace == std::chrono::seconds(35));
  CHECK_FALSE(find_leader("j", 8));
  erase_leader("j", 7);
  CHECK_FALSE(find_leader("j", 7));
}

TEST_CASE("removing an entry keeps that of another agent", "[registry]") {
  const RuntimeFolder folder;
  note_job("j", {"h", 1});
  std::ofstream(folder.only_file()) << "other\n2\n" << ::getpid() + 1 << "\n?\n";
  forget_job("j");
  REQUIRE(find_job("j"));
  CHECK(find_job("j")->host == "other");
}

TEST_CASE("a truncated entry is ignored", "[registry]") {
  const RuntimeFolder folder;
  note_job("j", {"h", 1});
  std::ofstream(folder.only_file()) << GENERATE("", "h", "h\n", "h\nx\n", "h\n12\n");
  CHECK_FALSE(find_job("j"));
  forget_job("j");
}

TEST_CASE("a folder that other users can read is not used", "[registry]") {
  const RuntimeFolder folder;
  note_job("j", {"h", 1});
  REQUIRE(find_job("j"));
  SECTION("") {
    REQUIRE(::chmod(folder.ours().c_str(), GENERATE(0755, 0750, 0701)) == 0);
  }
  SECTION("nor is a symlink") {
    fs::rename(folder.ours(), folder.ours() + "-elsewhere");
    fs::create_symlink(folder.ours() + "-elsewhere", folder.ours());
  }
  SECTION("nor is the folder of another user") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(folder.ours().c_str(), 65534, 65534) == 0);
  }
  CHECK_FALSE(find_job("j"));
  note_job("k", {"h", 1});
  CHECK_FALSE(fs::exists(folder.ours() + "/k.job"));
}
