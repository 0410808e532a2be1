#pragma once

#include <memory>
#include <string>

#include "rendezvous/sealer.hpp"

namespace mgpu::launcher {

// Seals with munge: only processes of our effective user can open the result, and only once.
// Requests wait in a short queue for one thread, so that neither a slow munged nor strangers who
// connect again and again hold up the event loop.
class MungeSealer : public rendezvous::Sealer {
 public:
  // An empty `socket` means munge's default. Throws if munge cannot be used, or does not keep other
  // users out.
  explicit MungeSealer(const std::string& socket);
  ~MungeSealer() override;  // does not wait for munged

  void deliver_through(Post post) override;
  void seal(std::string text, Done done) override;
  void unseal(std::string sealed, Done done) override;

 private:
  struct Queue;

  void start();  // the thread, with the first request

  std::shared_ptr<Queue> queue_;  // shared with the thread
  bool started_ = false;
};

}  // namespace mgpu::launcher
