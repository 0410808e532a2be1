#include "runtime/servers/listeners.hpp"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace mgpu::servers;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

// A /proc with two sockets at port 8000 (0x1F40), one over IPv4 that listens and one that is
// connected, and one that listens over IPv6 at port 8001.
class FakeProc {
 public:
  FakeProc() {
    const std::string row = " 00000000:00000000 00:00000000 00000000  1000        0 ";
    fs::create_directories(root() + "/net");
    std::ofstream(root() + "/net/tcp")
        << "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        << "   0: 00000000:1F40 00000000:0000 0A" << row << "4711 1 0000000000000000 100 0\n"
        << "   1: 0100007F:1F40 0100007F:9C40 01" << row << "4712 1 0000000000000000 20 4\n"
        << "   2: 0100007F:1F41 00000000:0000 0A" << row << "4713 1 0000000000000000 100 0\n";
    std::ofstream(root() + "/net/tcp6")
        << "  sl  local_address                         remote_address                        st\n"
        << "   0: 00000000000000000000000000000000:1F42 00000000000000000000000000000000:0000 0A"
        << row << "4714 1 0000000000000000 100 0\n";
  }
  std::string root() const { return folder_.root().string(); }

  void add(int pid, const std::string& inode, const std::string& environment,
           const std::string& command) {
    const auto own = root() + "/" + std::to_string(pid);
    fs::create_directories(own + "/fd");
    fs::create_symlink("/dev/null", own + "/fd/0");
    fs::create_symlink("socket:[" + inode + "]", own + "/fd/7");
    std::ofstream(own + "/comm") << "vllm\n";
    std::ofstream(own + "/environ") << environment;
    std::ofstream(own + "/cmdline") << command;
  }

 private:
  TempDir folder_;
};

}  // namespace

TEST_CASE("processes that listen at a port are found with their GPUs", "[servers]") {
  FakeProc proc;
  proc.add(100, "4711", "HOME=/root\0CUDA_VISIBLE_DEVICES=2,3\0LAST=1\0"s,
           "vllm\0serve\0M\0--tensor-parallel-size\0002\0"s);
  proc.add(101, "4712", "CUDA_VISIBLE_DEVICES=0\0"s, "a client of it\0"s);
  proc.add(102, "4714", "HOME=/root\0"s, "vllm\0-tp=2\0--data_parallel_size\0003\0"s);
  CHECK(listeners(proc.root(), 8000) == std::vector<Listener>{{100, "vllm", "2,3", 2}});
  CHECK(listeners(proc.root(), 8002) == std::vector<Listener>{{102, "vllm", std::nullopt, 6}});
  CHECK(listeners(proc.root(), 8001).empty());  // a process that we may not inspect
  CHECK(listeners(proc.root(), 9000).empty());
  CHECK(listeners(proc.root() + "/none", 8000).empty());
}

TEST_CASE("the users who listen at a port are found, even if their processes are hidden",
          "[servers]") {
  const FakeProc proc;
  using Users = std::set<uid_t>;
  CHECK(listening_users(proc.root(), 8000) == Users{1000});
  CHECK(listening_users(proc.root(), 8002) == Users{1000});
  CHECK(listening_users(proc.root(), 9000).empty());
  CHECK(listening_users(proc.root() + "/none", 8000).empty());
}

TEST_CASE("a server without CUDA_VISIBLE_DEVICES uses the first GPUs", "[servers]") {
  using Names = std::vector<std::string>;
  CHECK(first_gpus(std::nullopt, 2) == Names{"0", "1"});
  CHECK(first_gpus("2, 3,5", 2) == Names{"2", "3"});
  CHECK(first_gpus("2", 4) == Names{"2"});
  CHECK(first_gpus("", 2).empty());
  CHECK(gpu_of_rank(std::nullopt, 3) == "3");
  CHECK(gpu_of_rank("4,GPU-abc", 1) == "GPU-abc");
  CHECK(gpu_of_rank("4", 1).empty());
}

TEST_CASE("a GPU that is used for training and serving is found", "[servers]") {
  const std::vector<Listener> two{{7, "vllm", "2,3", 1}, {8, "vllm", std::nullopt, 2}};
  CHECK(listener_on(two, 0, "2")->pid == 7);
  CHECK(listener_on(two, 0, "1")->pid == 8);
  CHECK(listener_on(two, 0, "3") == nullptr);
  CHECK(listener_on(two, 2, "3")->pid == 7);  // the server reported two
  CHECK(listener_on(two, 0, "") == nullptr);
  CHECK(listener_on({}, 2, "0") == nullptr);
}

TEST_CASE("a rank on a GPU of the server is refused with what to do", "[servers]") {
  const std::vector<Listener> both{{7, "vllm", "0,1", 2}};
  CHECK(shared_gpu_error(both, 0, "1", 1, "http://127.0.0.1:8000") ==
        "GPU 1 is used by rank 1 and by the server at http://127.0.0.1:8000 (vllm, pid 7); assign "
        "them different GPUs with CUDA_VISIBLE_DEVICES, or use vllm_mode: colocate, where the "
        "built-in engine generates on the training GPUs");
  CHECK_FALSE(shared_gpu_error(both, 0, "2", 0, "http://127.0.0.1:8000"));
}
