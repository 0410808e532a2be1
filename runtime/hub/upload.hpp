#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/hub/program.hpp"

namespace mgpu::hub {

// A model that is to be copied to the Hub.
struct Upload {
  std::string folder;
  std::string name;      // owner/name, or a name of the user whose token hf has
  std::string revision;  // a branch; empty: main
  std::string token;     // empty: HF_TOKEN, or that of `hf auth login`
  bool is_private = false;
};

// The command that uploads the files of the model; checkpoints and logs stay where they are.
// Nothing: hf is not installed.
std::optional<Program> upload_program(const Upload& upload);

// The same command for a user to type, without the token.
std::string upload_command(const Upload& upload);

// Runs it to its end. Throws HubError with one line; the folder is never changed.
void run_upload(const Upload& upload);

}  // namespace mgpu::hub
