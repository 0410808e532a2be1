#pragma once

#include <sys/types.h>

#include <string>

namespace mgpu::rewards {

// Which users and groups exist in the user namespace of a sandbox, as the kernel reads it.
//
// Root maps all that it has, and its program becomes nobody: the kernel does not limit the number
// of processes of root. Any other user may map only itself, and its program stays that user.
struct UserMap {
  std::string users{};
  std::string groups{};
  bool all = false;  // else the kernel requires that groups cannot be changed
};

UserMap choose_user_map();

// Sets the map of the new user namespace of a child. Throws std::system_error.
void write_user_map(pid_t child, const UserMap& map);

}  // namespace mgpu::rewards
