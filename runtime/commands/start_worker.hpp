#pragma once

namespace mgpu::recipes {

// Replaces this process with the worker, which gets the same arguments and environment. Throws
// std::runtime_error if the worker or the LibTorch that it needs is missing or of another version.
[[noreturn]] void start_worker(char** argv);

}  // namespace mgpu::recipes
