// Only a store, for tests with other programs: store_server [PORT].
// Prints the port and serves until it is killed.

#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "rendezvous/store/server.hpp"

int main(int argc, char* argv[]) try {
  mgpu::rendezvous::store::StoreServer server({.port = argc > 1 ? std::atoi(argv[1]) : 0});
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  for (;;) {
    pollfd wanted{server.fd(), POLLIN, 0};
    ::poll(&wanted, 1, -1);
    server.serve_ready();
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "store_server: %s\n", error.what());
  return 1;
}
