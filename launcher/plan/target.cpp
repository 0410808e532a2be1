#include "launcher/plan/target.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "launcher/options/saved_file.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

namespace fs = std::filesystem;
using rendezvous::error_text;
using rendezvous::UniqueFd;

// A path or word of the user in a message.
std::string shown_path(const std::string& path) {
  return rendezvous::shown(path, 300);
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_regular(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

bool is_executable(const std::string& path) {
  return is_regular(path) && ::access(path.c_str(), X_OK) == 0;
}

// The first bytes of a readable file; throws UsageError when there is no such file.
std::string head_of(const std::string& path, const std::string& what) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0)
    throw UsageError(
        fmt::format("cannot run {} {}: {}", what, shown_path(path), error_text(errno)));
  if (S_ISDIR(st.st_mode))
    throw UsageError(
        fmt::format("cannot run {}: it is a directory; name a script, a .yaml file "
                    "or a program, or use -m for a package",
                    shown_path(path)));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    // A program may be executable but not readable.
    if (errno == EACCES && is_executable(path)) return {};
    throw UsageError(
        fmt::format("cannot read {} {}: {}", what, shown_path(path), error_text(errno)));
  }
  char buffer[256];
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
  return {buffer, n > 0 ? static_cast<size_t>(n) : 0};
}

bool has_python_shebang(std::string_view head) {
  if (!head.starts_with("#!")) return false;
  return head.substr(0, head.find('\n')).find("python") != std::string_view::npos;
}

std::string with_slash(const std::string& path) {
  return path.find('/') == std::string::npos ? "./" + path : path;
}

std::string python_program(const std::string& target) {
  if (const auto chosen = from_environment("PYTHON_EXEC"); !chosen.empty()) {
    const auto found = find_on_path(chosen);
    if (found.empty())
      throw UsageError(fmt::format(
          "PYTHON_EXEC={}: no such program; set it to a Python interpreter", shown_path(chosen)));
    return found;
  }
  for (const char* name : {"python3", "python"})
    if (auto found = find_on_path(name); !found.empty()) return found;
  throw UsageError(fmt::format(
      "cannot run {}: no python3 or python on PATH; set PYTHON_EXEC, or use --no-python "
      "for a program",
      shown_path(target)));
}

CommandLine python_line(std::vector<std::string> tail, const Options& options) {
  CommandLine line{{python_program(options.target), "-u"}, true};
  for (auto& word : tail) line.argv.push_back(std::move(word));
  if (options.append_local_rank) line.argv.push_back("--local-rank=${local_rank}");
  line.argv.insert(line.argv.end(), options.args.begin(), options.args.end());
  return line;
}

CommandLine yaml_line(const Options& options) {
  if (!options.only_set) require_saved_file(options.target);
  if (!options.only_set && head_of(options.target, "recipe").empty())
    throw UsageError(
        fmt::format("{}: the file is empty; a recipe needs at least `task:` and a model",
                    shown_path(options.target)));
  auto trainer = trainer_program();
  if (trainer.empty())
    throw UsageError(
        fmt::format("cannot run {}: mgpu-train is neither beside mgpu-run nor on PATH; "
                    "install or build it, or set MGPU_TRAIN",
                    shown_path(options.target)));
  CommandLine line{{std::move(trainer)}, false};
  if (!options.only_set) line.argv.push_back(options.target);
  for (const auto& pair : options.set) {
    line.argv.push_back("--set");
    line.argv.push_back(pair);
  }
  line.argv.insert(line.argv.end(), options.args.begin(), options.args.end());
  return line;
}

CommandLine program_line(const Options& options) {
  const auto found = find_on_path(options.target);
  if (found.empty()) {
    if (options.target.find('/') == std::string::npos)
      throw UsageError(
          fmt::format("cannot run {}: no such program on PATH; write ./ before the name of a "
                      "program in this directory",
                      shown_path(options.target)));
    head_of(options.target,
            "program");  // throws the reason when it does not exist or is a directory
    throw UsageError(fmt::format("cannot run {0}: permission denied; run chmod +x {0}",
                                 shown_path(options.target)));
  }
  CommandLine line{{found}, false};
  line.argv.insert(line.argv.end(), options.args.begin(), options.args.end());
  if (options.append_local_rank) line.argv.push_back("--local-rank=${local_rank}");
  return line;
}

}  // namespace

std::string trainer_program() {
  if (const auto chosen = from_environment("MGPU_TRAIN"); !chosen.empty()) {
    const auto found = find_on_path(chosen);
    if (found.empty())
      throw UsageError(
          fmt::format("MGPU_TRAIN={}: no such program; set it to mgpu-train", shown_path(chosen)));
    return found;
  }
  std::error_code none;
  const auto beside = fs::read_symlink("/proc/self/exe", none).parent_path() / "mgpu-train";
  if (is_executable(beside)) return beside;
  return find_on_path("mgpu-train");
}

std::string find_on_path(const std::string& name) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : std::string();
  const auto path = from_environment("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const auto folder = path.substr(begin, end - begin);
    auto candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(candidate)) return candidate;
    begin = end + 1;
  }
  return {};
}

CommandLine resolve_target(const Options& options) {
  if (options.module) return python_line({"-m", options.target}, options);
  if (options.no_python && !options.run_path) return program_line(options);
  if (options.is_recipe()) return yaml_line(options);
  require_saved_file(options.target);
  const auto head = head_of(options.target, "script");
  const bool python = options.target.ends_with(".py") || has_python_shebang(head) ||
                      ::access(options.target.c_str(), X_OK) != 0;
  if (python) return python_line({options.target}, options);
  Options program = options;
  program.target = with_slash(options.target);
  return program_line(program);
}

}  // namespace mgpu::launcher
