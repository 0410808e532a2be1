#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/cli.hpp"

namespace mgpu::tests {

using Environment = std::map<std::string, std::string>;

// parse_options under the name `program`, in an environment that the test gives.
inline launcher::Options parse(std::vector<std::string> words, const Environment& environment = {},
                               const std::string& program = "mgpu-run") {
  words.insert(words.begin(), program);
  return launcher::parse_options(
      words, [&environment](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        if (found == environment.end()) return std::nullopt;
        return found->second;
      });
}

}  // namespace mgpu::tests
