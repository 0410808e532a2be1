#pragma once

#include <string>

namespace mgpu::launcher {

// What --help prints: every option that is not of torchrun's small print, in groups, then the
// names of the others, then the exit statuses. Ends with a newline.
std::string help_text();

// What --version prints, with a newline, and the number in it.
std::string version_text();
std::string version_number();

}  // namespace mgpu::launcher
