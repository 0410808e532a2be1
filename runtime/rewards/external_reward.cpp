#include "runtime/rewards/external_reward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"
#include "runtime/rewards/child.hpp"
#include "runtime/rewards/python_program.hpp"
#include "runtime/rewards/sandbox.hpp"

namespace mgpu::rewards {
namespace {

// Requests to a server cost little here; a process costs memory, and has no state in common with
// the others.
constexpr int kRequests = 8, kProcesses = 1;

bool is_address(const std::string& name) {
  return name.starts_with("http://") || name.starts_with("https://");
}

// A sandbox is started once now, so that a machine that cannot make one is noticed before the model
// is loaded and not after the first completions.
std::unique_ptr<Reward> make_program_reward(const std::string& name, ChildProgram program,
                                            const Settings& settings) {
  program.sandboxed = settings.reward_sandbox;
  if (program.sandboxed) check_sandbox(program.readable, program.folder);
  return make_endpoint_reward(
      name, [program = std::move(program)] { return std::make_unique<Child>(program); },
      settings.reward_concurrency.value_or(kProcesses), Distribution::in_turn, settings);
}

// Whether a command line is one program with its arguments: no list of commands, no variable before
// it, and nothing that only the shell itself can do.
bool is_one_program(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && quote != '\'')
      ++i;
    else if (quote != 0)
      quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"')
      quote = c;
    else if (std::string_view(";&|()\n").find(c) != std::string_view::npos)
      return false;
  }
  const auto first = line.substr(0, line.find_first_of(" \t"));
  constexpr std::array<std::string_view, 14> kOfTheShell{"cd",    "exec",  "eval",  "export", "set",
                                                         "unset", ".",     "{",     "!",      "if",
                                                         "for",   "while", "until", "case"};
  return first.find('=') == first.npos &&
         std::find(kOfTheShell.begin(), kOfTheShell.end(), first) == kOfTheShell.end();
}

// One program replaces the shell, so that the shell does not hold its stdin and stdout too.
std::string shell_line(const std::string& command) {
  return is_one_program(command) ? "exec " + command : command;
}

// ./my_rewards.py:fn
ChildProgram python_program(const std::string& name, const Settings& settings) {
  const auto colon = name.rfind(':');
  const auto function = name.substr(colon + 1);
  std::filesystem::path file = name.substr(0, colon);
  if (file.is_relative() && !settings.folder.empty()) file = settings.folder / file;
  if (function.empty())
    throw rendezvous::InputError(fmt::format(
        "reward {}: the function name after the colon is missing", rendezvous::shown(name)));
  if (!std::filesystem::is_regular_file(file))
    throw rendezvous::InputError(
        fmt::format("reward {}: file {} does not exist", rendezvous::shown(name), file.string()));
  ChildProgram program{
      .argv = {settings.reward_python, "-c", kPythonProgram, file.string(), function},
      .announces_ready = true};
  // Python would import modules from the current folder first. (The program removes this variable.)
  if (!std::getenv("PYTHONSAFEPATH")) program.environment = {"PYTHONSAFEPATH=mgpu-train"};
  program.readable = program_paths(settings.reward_python);
  program.readable.push_back(file.string());
  program.readable.push_back(std::filesystem::absolute(file).parent_path().string());
  return program;
}

}  // namespace

bool runs_program(const std::string& name) {
  return name.starts_with("cmd:") || (!is_address(name) && name.find(".py:") != name.npos);
}

std::unique_ptr<Reward> make_external_reward(const std::string& name, const Settings& settings) {
  if (name.starts_with("cmd:")) {
    const auto program = name.substr(
        name.find_first_not_of(' ', 4) == name.npos ? name.size() : name.find_first_not_of(' ', 4));
    if (program.empty()) throw rendezvous::InputError("reward cmd: has no program after the colon");
    return make_program_reward(name,
                               {.argv = {"/bin/sh", "-c", shell_line(program)},
                                .command = program,
                                .folder = settings.folder,
                                .readable = program_paths(program)},
                               settings);
  }
  if (is_address(name))
    return make_endpoint_reward(name, http_endpoints(name, settings.patience),
                                settings.reward_concurrency.value_or(kRequests),
                                Distribution::any_free, settings);
  if (name.find(".py:") != name.npos)
    return make_program_reward(name, python_program(name, settings), settings);
  return nullptr;
}

}  // namespace mgpu::rewards
