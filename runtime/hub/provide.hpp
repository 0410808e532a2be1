#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/hub/failure.hpp"
#include "runtime/hub/repository.hpp"

namespace mgpu::hub {

struct ProvideOptions {
  bool offline = false;  // connect to nothing
  // Of the whole. With a limit nothing is tried twice, and an interrupted download counts as
  // complete if the needed files are there.
  std::optional<std::chrono::milliseconds> limit = {};
  std::chrono::milliseconds idle_limit = std::chrono::minutes(10);  // without a new byte
  // Before each further attempt after a failure that may pass.
  std::vector<std::chrono::milliseconds> waits = {std::chrono::seconds(1), std::chrono::seconds(5),
                                                  std::chrono::seconds(30)};
  std::function<void(const std::string&)> say = [](const std::string&) {};  // lines of progress
};

// The folder in the cache, if it has all needed files; empty: it has not.
std::string complete_folder(const Repository& repository);

// Whether that is so and no download was interrupted, so that provide() has nothing to do.
bool is_provided(const Repository& repository);

// The folder in the cache with the needed part of a repository. What is missing is downloaded with
// the program of the hub; processes that share a cache do this one after another, so that each file
// is downloaded once. A download that was interrupted is continued with the files that it lacks; no
// file appears in the folder before it is complete. Throws HubError.
std::string provide(const Repository& repository, const ProvideOptions& options);

}  // namespace mgpu::hub
