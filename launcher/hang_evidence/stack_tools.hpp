#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// An installed program that prints the stacks of a process.
struct StackTool {
  std::string name;  // "gdb"
  std::string path;

  std::vector<std::string> command(pid_t pid) const;
};

// eu-stack, else gdb: they print native stacks. Nullopt: neither is in a folder of `path`, the
// value of PATH.
std::optional<StackTool> native_stack_tool(std::string_view path);
// py-spy, for versions of Python that this program cannot read itself.
std::optional<StackTool> python_stack_tool(std::string_view path);

// The functions of the main thread in the output of eu-stack or gdb, the innermost call first;
// pure.
std::vector<std::string> main_thread_functions(std::string_view output);

}  // namespace mgpu::launcher
