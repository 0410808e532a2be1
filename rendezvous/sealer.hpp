#pragma once

#include <functional>
#include <string>

namespace mgpu::rendezvous {

// Seals texts so that only processes of our own user can read them, on any machine of the cluster,
// and opens texts that our own user has sealed. A call takes about a millisecond, but seconds if
// the service that does it is slow, so the event loop does not wait for it.
class Sealer {
 public:
  // Called once, in the thread of the event loop. If `problem` is not empty, it is one line, and
  // there is no text.
  using Done = std::function<void(std::string text, std::string problem)>;
  using Post = std::function<void(std::function<void()>)>;

  Sealer() = default;
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;
  virtual ~Sealer() = default;

  // `post` runs a function in the thread of the event loop. Called before the other two, and with
  // null before that event loop goes away: results that come later are dropped.
  virtual void deliver_through(Post post) = 0;
  virtual void seal(std::string text, Done done) = 0;
  // It is a problem if the text was sealed by another user.
  virtual void unseal(std::string sealed, Done done) = 0;
};

}  // namespace mgpu::rendezvous
