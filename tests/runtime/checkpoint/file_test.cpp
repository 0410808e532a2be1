#include "runtime/checkpoint/file.hpp"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

std::atomic<int> interrupted_syncs = 0;  // of the next calls

}  // namespace

// In place of libc's.
extern "C" int fsync(int fd) {
  if (interrupted_syncs > 0) {
    --interrupted_syncs;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

TEST_CASE("a signal while a file is fsynced is no error", "[file]") {
  const TempDir dir(TempDir::in_memory());
  interrupted_syncs = 1;
  write_file(dir.path("f"), "x");
  CHECK(interrupted_syncs == 0);
  interrupted_syncs = 2;
  sync_file(dir.path("f"));
  interrupted_syncs = 2;
  sync_folder(dir.root());
  CHECK(interrupted_syncs == 0);
}

TEST_CASE("an output file appears when it is committed and not before", "[file]") {
  const TempDir dir(TempDir::in_memory());
  const std::string path = dir.path("out");
  OutputFile file(path, 10);
  file.write_at(5, bytes_of("world"));
  file.write_at(0, bytes_of("hello"));
  CHECK_FALSE(std::filesystem::exists(path));
  file.commit();
  CHECK(read_file(path, 10) == "helloworld");
  CHECK_THROWS_WITH(read_file(path, 9), Contains("has 10 bytes; the limit is 9 bytes"));
}

TEST_CASE("only regular files can be opened", "[file]") {
  const TempDir dir(TempDir::in_memory());
  CHECK_THROWS_WITH(MappedFile(dir.root()), Contains("is not a regular file"));
  CHECK_THROWS_WITH(MappedFile(dir.path("gone")), Contains("gone: No such file"));
  REQUIRE(::mkfifo(dir.path("fifo").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(MappedFile(dir.path("fifo")), Contains("fifo is not a regular file"));
  std::ofstream(dir.path("empty")).flush();
  CHECK(MappedFile(dir.path("empty")).bytes().empty());
}

TEST_CASE("a new file has the permissions that the umask allows", "[file]") {
  const TempDir dir(TempDir::in_memory());
  const mode_t before = ::umask(027);
  write_file(dir.path("f"), "x");
  ::umask(before);
  struct stat info{};
  REQUIRE(::stat(dir.path("f").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0640);
}

TEST_CASE("sizes are formatted with units", "[file]") {
  CHECK(human_size(999) == "999 bytes");
  CHECK(human_size(5'000'000'000) == "5.00 GB");
  CHECK(human_size(UINT64_MAX) == "18.45 EB");
}

TEST_CASE("the folder of a bare name is the current folder", "[file]") {
  CHECK(folder_of("a") == ".");
  CHECK(folder_of("a/b") == "a");
  CHECK(folder_of("/a") == "/");
}

TEST_CASE("a copy is complete, independent and replaces an older file", "[file]") {
  // Within a file system, and from one to another, where the kernel may not support copying.
  const TempDir memory(TempDir::in_memory()), disk;
  std::string content(3'000'001, 'x');
  content.back() = 'y';
  const std::string from = memory.path("from");
  write_file(from, content);
  for (const TempDir* dir : {&memory, &disk}) {
    const std::string to = dir->path("to");
    write_file(to, "an older one");
    copy_file(from, to);
    CHECK(read_file(to, 1 << 22) == content);
    std::ofstream(to, std::ios::in | std::ios::out) << "changed in place";
    CHECK(read_file(from, 1 << 22) == content);
  }
  write_file(from, "");
  copy_file(from, disk.path("to"));
  CHECK(read_file(disk.path("to"), 1).empty());
  CHECK_THROWS_WITH(copy_file(memory.path("gone"), disk.path("new")),
                    Contains("gone: No such file"));
  CHECK_FALSE(std::filesystem::exists(disk.path("new")));
}

TEST_CASE("a folder that cannot be created or written is reported with a remedy", "[file]") {
  const TempDir dir(TempDir::in_memory());
  make_writable_folder(dir.path("a/b"));
  CHECK(std::filesystem::is_directory(dir.path("a/b")));
  make_writable_folder(dir.path("a/b"));
  write_file(dir.path("file"), "");
  CHECK_THROWS_WITH(make_writable_folder(dir.path("file/out")),
                    Contains("cannot create the folder " + dir.path("file/out")) &&
                        Contains("a file is in its way: choose another output_dir"));
  if (::geteuid() == 0) return;  // root may write anywhere
  ::chmod(dir.path("a").c_str(), 0500);
  CHECK_THROWS_WITH(make_writable_folder(dir.path("a")),
                    Contains("cannot write into the folder " + dir.path("a")) &&
                        Contains("choose another output_dir"));
  ::chmod(dir.path("a").c_str(), 0700);
}
