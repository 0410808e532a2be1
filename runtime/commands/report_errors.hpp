#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mgpu::recipes {

// Reports errors of the recipe or of its files, which another attempt would find again, and ends
// the process with exit status 2, which the launcher does not restart. Connections to other ranks
// stay open until then, and threads may be opening the GPU: no destructors run.
[[noreturn]] void refuse(const std::vector<std::string>& lines);

// Writes what is left of the standard output. Throws if any of it could not be written.
void finish_output();

// Runs a program's main function and returns its exit status. Reports what it throws: on stderr,
// and for an error that is not the user's also in the launcher's error file. An error of the
// recipe, of its files or a failure ends the process at once, without destructors.
int report_errors(const std::function<int()>& run);

// Ends the process without the destructors of static objects: LibTorch's take a quarter of a
// second, and free only memory. A profiler or a checker that was loaded into the process writes its
// results then, so with one of these they run.
[[noreturn]] void end_process(int status);

}  // namespace mgpu::recipes
