#pragma once

#include <string>

namespace mgpu::launcher {

// What --help prints: every option that has a help text, in groups; then the names of the
// remaining (torchrun) options; then the exit statuses. Ends with a newline.
std::string help_text();

// What --version prints, with a newline, and the number in it.
std::string version_text();
std::string version_number();

}  // namespace mgpu::launcher
