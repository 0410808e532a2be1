#include "launcher/nodes/token.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/ranks/rank_group.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::rendezvous::UniqueFd;
using mgpu::tests::TempDir;

namespace {

std::string write_secret(const TempDir& dir, const std::string& name, const std::string& text,
                         mode_t mode = 0600) {
  const auto path = dir.path(name);
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path;
}

std::optional<Secret> secret_from(const Options& options,
                                  const std::map<std::string, std::string>& env,
                                  const std::string& mounted = "/nowhere", int stdin_fd = -1) {
  return find_secret(
      options, options.scheduler,
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = env.find(name);
        return found == env.end() ? std::nullopt : std::optional(found->second);
      },
      stdin_fd, mounted);
}

}  // namespace

TEST_CASE("a token file contains the secret and an optional newline", "[token]") {
  TempDir dir;
  const std::string secret = "sixteen letters!";
  CHECK(read_secret_file(write_secret(dir, "a", secret)) == secret);
  CHECK(read_secret_file(write_secret(dir, "b", secret + "\n")) == secret);
  CHECK(read_secret_file(write_secret(dir, "c", "two words " + secret + "\r\n", 0400)) ==
        "two words " + secret);
  CHECK(read_secret_file(write_secret(dir, "d", secret + std::string("\0\x01\n\n", 4))) ==
        secret + std::string("\0\x01\n", 3));
  CHECK(read_secret_file(write_secret(dir, "e", std::string(4096, 'x') + "\n")).size() == 4096);
}

TEST_CASE("a token file that other users may access is rejected", "[token]") {
  TempDir dir;
  const mode_t mode = GENERATE(0640, 0604, 0620, 0602, 0610, 0601, 0666);
  CAPTURE(mode);
  CHECK_THROWS_WITH(read_secret_file(write_secret(dir, "token", "secret", mode)),
                    Contains("other users can access it (mode 06") && Contains("chmod 600"));
}

TEST_CASE("a token file of another user is rejected", "[token]") {
  if (::geteuid() != 0) {
    WARN("only root can give files away");
    return;
  }
  TempDir dir;
  const auto path = write_secret(dir, "token", "secret");
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  CHECK_THROWS_WITH(read_secret_file(path),
                    Contains("belongs to uid 65534, but mgpu-run runs as uid 0"));
}

TEST_CASE("an invalid secret is a one-line error", "[token]") {
  TempDir dir;
  CHECK_THROWS_WITH(read_secret_file(dir.path("none")),
                    Contains("cannot read the token file") && Contains("none: No such file"));
  CHECK_THROWS_WITH(read_secret_file(dir.path(".")), Contains("not a regular file"));
  CHECK_THROWS_WITH(read_secret_file(write_secret(dir, "a", "")), Contains("the token is empty"));
  CHECK_THROWS_WITH(read_secret_file(write_secret(dir, "b", "\n")), Contains("the token is empty"));
  CHECK_THROWS_WITH(read_secret_file(write_secret(dir, "b", "fifteen letters\n")),
                    Contains("the token has 15 bytes; it needs at least 16"));
  CHECK_THROWS_WITH(read_secret_file(write_secret(dir, "c", std::string(4097, 'x'))),
                    Contains("at most 4096 bytes"));
  CHECK_THROWS_WITH(read_secret_file(write_secret(dir, "d", std::string(10'000'000, 'x'))),
                    Contains("at most 4096 bytes"));
  const auto pipe = dir.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_secret_file(pipe), Contains("not a regular file"));
}

TEST_CASE("a mounted Secret of Kubernetes is read through its symlinks", "[token]") {
  namespace fs = std::filesystem;
  TempDir dir;
  fs::create_directory(dir.path("..2026_11_21"));
  write_secret(dir, "..2026_11_21/token", "mounted by kubelet", 0400);
  fs::create_directory_symlink("..2026_11_21", dir.path("..data"));
  fs::create_symlink("..data/token", dir.path("token"));
  Options options;
  CHECK_FALSE(secret_from(options, {}, dir.path("token")));
  options.scheduler.kind = SchedulerJob::Kind::kubernetes;
  const auto secret = secret_from(options, {}, dir.path("token"));
  REQUIRE(secret);
  CHECK(secret->bytes == "mounted by kubelet");
  CHECK(secret->from == dir.path("token"));
  CHECK_FALSE(secret_from(options, {}, dir.path("none")));
  ::chmod(dir.path("token").c_str(), 0444);  // much like a mount without defaultMode
  CHECK_THROWS_WITH(secret_from(options, {}, dir.path("token")), Contains("defaultMode: 0400"));
}

TEST_CASE("the file takes precedence over the variable, and stdin over both", "[token]") {
  TempDir dir;
  Options options;
  CHECK_FALSE(secret_from(options, {}));
  CHECK_FALSE(secret_from(options, {{"MGPU_RDZV_TOKEN", ""}}));
  CHECK(secret_from(options, {{"MGPU_RDZV_TOKEN", "of the variable."}})->bytes ==
        "of the variable.");
  CHECK_THROWS_WITH(secret_from(options, {{"MGPU_RDZV_TOKEN", "\n"}}),
                    Contains("MGPU_RDZV_TOKEN: the token is empty"));
  options.rdzv_token_file = write_secret(dir, "token", "that of the file");
  CHECK(secret_from(options, {{"MGPU_RDZV_TOKEN", "of the variable."}})->bytes ==
        "that of the file");

  options.rdzv_token_stdin = true;
  const UniqueFd in(
      ::open(write_secret(dir, "stdin", "that of the line\nmore").c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(secret_from(options, {}, "", in.get())->bytes == "that of the line");
  char rest[8] = {};
  CHECK(::read(in.get(), rest, sizeof rest) == 4);  // later bytes are left for other readers
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK_THROWS_WITH(secret_from(options, {}, "", nothing.get()),
                    Contains("stdin: the token is empty"));
  const UniqueFd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  CHECK_THROWS_WITH(secret_from(options, {}, "", zeros.get()),
                    Contains("stdin: the token is too long"));
}

TEST_CASE("every new secret is different", "[token]") {
  const auto one = make_secret(), other = make_secret();
  CHECK(one.size() == 64);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(one != other);
}

TEST_CASE("ranks inherit neither the secret nor the password for etcd", "[token]") {
  std::string token = "MGPU_RDZV_TOKEN=s", file = "MGPU_RDZV_TOKEN_FILE=f", other = "A=1";
  std::string conf = "PET_RDZV_CONF=password=s", ours_conf = "MGPU_RDZV_CONF=password=s";
  char* ours[] = {token.data(), conf.data(), ours_conf.data(), file.data(), other.data(), nullptr};
  CHECK(environment_of({}, ours) == std::vector<std::string>{"MGPU_RDZV_TOKEN_FILE=f", "A=1"});
}

TEST_CASE("a job within a job does not take the outer job's socket and replacement for its own",
          "[worker_socket]") {
  std::string socket = "MGPU_WORKER_SOCKET=@outer", number = "MGPU_REPLACEMENT=1";
  char* ours[] = {socket.data(), number.data(), nullptr};
  CHECK(environment_of({}, ours).empty());
  RankSpec spec;
  spec.env = {{"MGPU_WORKER_SOCKET", "@inner"}};
  CHECK(environment_of(spec, ours) == std::vector<std::string>{"MGPU_WORKER_SOCKET=@inner"});
}
