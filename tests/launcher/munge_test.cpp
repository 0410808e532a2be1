#include "launcher/nodes/munge.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

constexpr const char* kProgram = "/usr/sbin/munged";

// A munged with its own key, which ends with the test.
class Daemon {
 public:
  Daemon(const TempDir& dir, const std::string& name, char key) : socket(dir.path(name)) {
    const auto key_file = dir.path(name + ".key");
    std::ofstream(key_file) << std::string(64, key);
    ::chmod(key_file.c_str(), 0600);
    ::chmod(dir.root().c_str(), 0755);
    const std::string words[] = {kProgram,
                                 "--foreground",
                                 "--force",
                                 "--num-threads=1",
                                 "--key-file=" + key_file,
                                 "--socket=" + socket,
                                 "--pid-file=" + dir.path(name + ".pid"),
                                 "--log-file=" + dir.path(name + ".log"),
                                 "--seed-file=" + dir.path(name + ".seed")};
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      std::vector<char*> argv;
      for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!answers() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ~Daemon() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  std::string socket;

 private:
  bool answers() const {
    try {
      Munge(socket).encode("", ::geteuid());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  pid_t pid_;
};

bool installed() {
  if (::access(kProgram, X_OK) == 0) return true;
  WARN("munge is not installed");
  return false;
}

}  // namespace

TEST_CASE("munge gives the creator of a credential, once", "[munge][fork]") {
  if (!installed()) return;
  TempDir dir;
  const Daemon daemon(dir, "one", 'k');
  const Munge munge(daemon.socket);
  const std::string payload("a nonce\0and more", 16);
  const auto credential = munge.encode(payload, ::geteuid());
  CHECK_THAT(credential, Catch::Matchers::StartsWith("MUNGE:"));
  const auto decoded = munge.decode(credential);
  CHECK(decoded.payload == payload);
  CHECK(decoded.uid == ::geteuid());
  CHECK(decoded.gid == ::getegid());
  CHECK_THROWS_WITH(munge.decode(credential),
                    Contains("munge rejected a credential: ") && Contains("eplayed"));
  CHECK(munge.decode(munge.encode("", ::geteuid())).payload.empty());

  SECTION("a munged with another key rejects it") {
    const Daemon other(dir, "other", 'x');
    CHECK_THROWS_WITH(Munge(other.socket).decode(munge.encode(payload, ::geteuid())),
                      Contains("nvalid"));
  }
  SECTION("an invalid credential is rejected") {
    for (const std::string bad : {"", "x", "MUNGE:", "MUNGE:AAAA:"})
      CHECK_THROWS_WITH(munge.decode(bad), Contains("munge rejected a credential: "));
    CHECK_THROWS_WITH(munge.decode(std::string(1 << 20, 'x')), Contains("too long"));
    CHECK_THROWS_WITH(munge.encode(std::string(1 << 20, 'x'), 0), Contains("too long"));
  }
}

TEST_CASE("without munged the error is one line", "[munge]") {
  if (!installed()) return;
  TempDir dir;
  CHECK_THROWS_WITH(Munge(dir.path("none")).encode("x", 0),
                    Contains("munge cannot make a credential: ") && Contains("none") &&
                        Contains("is munged running?"));
}
