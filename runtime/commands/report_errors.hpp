#pragma once

#include <functional>

namespace mgpu::recipes {

// Runs a program's main function and returns its exit status. Reports what it throws: on stderr,
// and for an error that is not the user's also in the launcher's error file. An error of the recipe
// or a failure ends the process at once, without destructors.
int report_errors(const std::function<int()>& run);

}  // namespace mgpu::recipes
