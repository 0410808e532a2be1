#include "launcher/nodes/free_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <random>
#include <stdexcept>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

bool can_bind(int port) {
  rendezvous::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(port));
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0;
}

}  // namespace

int free_port() {
  constexpr int kLowest = 20000, kHighest = 32000, kTries = 200;
  std::minstd_rand random(std::random_device{}());
  std::uniform_int_distribution<int> pick(kLowest, kHighest);
  for (int i = 0; i < kTries; ++i)
    if (const int port = pick(random); can_bind(port)) return port;
  throw std::runtime_error(
      "cannot find a free port between 20000 and 32000; choose one with "
      "--master-port");
}

}  // namespace mgpu::launcher
