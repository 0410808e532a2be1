#pragma once

#include <string>
#include <string_view>

namespace mgpu::launcher {

// The value of an option, for a message: without what follows password= (up to the end, because a
// password with a comma looks like several settings) and without the password in user:password@.
std::string hide_passwords(std::string_view text);

}  // namespace mgpu::launcher
