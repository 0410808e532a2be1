#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace mgpu::rendezvous::store {

// Adds a descriptor to an epoll (EPOLL_CTL_ADD), or changes what is waited for (EPOLL_CTL_MOD).
// Its events carry its number. False: the system has refused.
inline bool watch_fd(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace mgpu::rendezvous::store
