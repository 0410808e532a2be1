#include "rendezvous/store/acceptor.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/store/watch_fd.hpp"

namespace mgpu::rendezvous::store {
namespace {

UniqueFd open_reserve() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

Acceptor::Accepted accept_from(int listener) {
  Acceptor::Accepted accepted;
  socklen_t size = sizeof accepted.peer;
  accepted.socket.reset(::accept4(listener, reinterpret_cast<sockaddr*>(&accepted.peer), &size,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted.socket) accepted.error = errno;
  return accepted;
}

bool out_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Acceptor::Acceptor(Listener listener, int epoll)
    : listener_(std::move(listener)), epoll_(epoll), reserve_(open_reserve()) {
  if (!watch_fd(epoll_, EPOLL_CTL_ADD, fd(), EPOLLIN))
    throw_errno("cannot watch the store's sockets");
}

bool Acceptor::Accepted::more() const {
  return error != EAGAIN && !starved();
}

bool Acceptor::Accepted::starved() const {
  return took_reserve && out_of_resources(error);
}

Acceptor::Accepted Acceptor::accept() {
  Accepted accepted = accept_from(fd());
  if (!out_of_resources(accepted.error)) return accepted;
  reserve_.reset();
  accepted = accept_from(fd());
  accepted.took_reserve = true;
  return accepted;
}

void Acceptor::restore_reserve() {
  reserve_ = open_reserve();
}

void Acceptor::pause() {
  watch_fd(epoll_, EPOLL_CTL_MOD, fd(), 0);
}

void Acceptor::resume() {
  if (!reserve_) reserve_ = open_reserve();
  watch_fd(epoll_, EPOLL_CTL_MOD, fd(), EPOLLIN);
}

void Acceptor::close_waiting() {
  if (!reserve_) reserve_ = open_reserve();
  reserve_.reset();  // frees a descriptor for accept()
  while (true) {
    const UniqueFd waiting(::accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!waiting && (errno == EAGAIN || out_of_resources(errno))) break;
  }
  reserve_ = open_reserve();
}

}  // namespace mgpu::rendezvous::store
