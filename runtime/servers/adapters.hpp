#pragma once

#include <string>

#include "runtime/servers/vllm.hpp"

namespace mgpu::servers {

// The adapter of a job on a server, a new name for each version: what was asked before a change is
// never answered after it. One at a time is there. For one rank.
class Adapters {
 public:
  // `folder`: where versions are written; the server has to see it. `start`: the command for a
  // server that takes adapters. `mark` is of this run alone.
  Adapters(const Caller& server, std::string folder, std::string start, std::string mark);

  // Removes what an earlier run with the same folder left on the server and on disk.
  void clean(const Facts& facts);

  // The version's name and where it is to be written.
  LoadedAdapter next(std::int64_t step);
  // The server answers with it from now on; the version before is removed there and on disk.
  void load(const LoadedAdapter& version);
  // Removes the last one too.
  void finish();

 private:
  bool is_there(const LoadedAdapter& version) const;
  void remove(const LoadedAdapter& version);

  const Caller& server_;
  std::string folder_, start_, mark_;
  LoadedAdapter loaded_;
  int number_ = 0;
};

}  // namespace mgpu::servers
