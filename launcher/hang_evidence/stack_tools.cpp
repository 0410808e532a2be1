#include "launcher/hang_evidence/stack_tools.hpp"

#include <unistd.h>

#include <algorithm>

#include "launcher/lifecycle/text_lines.hpp"

namespace mgpu::launcher {
namespace {

std::optional<StackTool> find_tool(const std::string& name, std::string_view path) {
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    const auto folder = path.substr(at, end - at);
    at = end + 1;
    if (!folder.starts_with('/')) continue;  // a relative folder may contain anybody's program
    auto file = std::string(folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return StackTool{name, std::move(file)};
  }
  return std::nullopt;
}

// "read" in "#1  0x00007f in read (fd=3) from /lib/libc.so.6" and in "#1  0x00007f read".
std::string_view function_in(std::string_view line) {
  const auto number_end = line.find_first_of(" \t");
  if (number_end == line.npos) return {};
  line.remove_prefix(std::min(line.find_first_not_of(" \t", number_end), line.size()));
  if (line.starts_with("0x")) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.starts_with("in ")) line.remove_prefix(3);
  }
  return line.substr(0, line.find(" ("));
}

}  // namespace

std::vector<std::string> StackTool::command(pid_t pid) const {
  const auto number = std::to_string(pid);
  if (name == "eu-stack") return {path, "-p", number};
  if (name == "py-spy") return {path, "dump", "--pid", number};
  // The main thread comes first, in case the output is cut off.
  return {path,
          "-p",
          number,
          "-batch",
          "-nx",
          "-iex",
          "set debuginfod enabled off",
          "-ex",
          "set print frame-arguments none",
          "-ex",
          "thread apply all -ascending bt"};
}

std::optional<StackTool> native_stack_tool(std::string_view path) {
  auto tool = find_tool("eu-stack", path);
  return tool ? tool : find_tool("gdb", path);
}

std::optional<StackTool> python_stack_tool(std::string_view path) {
  return find_tool("py-spy", path);
}

std::vector<std::string> main_thread_functions(std::string_view output) {
  std::vector<std::string> functions;
  bool in_first = false;
  for (const auto line : lines_of(output)) {
    if (line.starts_with("Thread ") || line.starts_with("TID ")) {
      if (in_first) break;
      in_first = true;
    } else if (in_first && line.starts_with('#')) {
      if (const auto function = function_in(line); !function.empty())
        functions.emplace_back(function);
    }
  }
  return functions;
}

}  // namespace mgpu::launcher
