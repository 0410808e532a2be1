#pragma once

#include <string>

#include "runtime/servers/vllm.hpp"

namespace mgpu::servers {

// A job's LoRA adapter on a server. Each version has a new name, so a request made before a change
// is never answered with the new weights. At most one version is loaded. Used by one rank only.
class Adapters {
 public:
  // Versions are written to `folder`, which the server must be able to read. `command` starts a
  // server that accepts adapters. `mark` is unique to this run.
  Adapters(const ServerClient& server, std::string folder, std::string command, std::string mark);

  // Removes adapters that an earlier run with the same folder left on the server and on disk.
  void clean(const ServedModel& served);

  // The name of the next version and the folder to write it to.
  LoadedAdapter next(std::int64_t step);
  // Loads the version on the server and removes the previous one from the server and from disk.
  void load(const LoadedAdapter& version);
  // Removes the loaded version.
  void finish();

 private:
  std::string folder_of(const std::string& name) const;
  bool is_there(const LoadedAdapter& version) const;
  void remove(const LoadedAdapter& version);

  const ServerClient& server_;
  std::string folder_, command_, mark_;
  LoadedAdapter loaded_;
  int number_ = 0;
};

}  // namespace mgpu::servers
