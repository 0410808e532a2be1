#include "runtime/rewards/external_reward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>

#include "rendezvous/base/spelling.hpp"
#include "runtime/rewards/child.hpp"
#include "runtime/rewards/python_program.hpp"
#include "runtime/rewards/sandbox.hpp"

namespace mgpu::rewards {
namespace {

class EndpointReward : public Reward {
 public:
  EndpointReward(std::string name, std::unique_ptr<ScoringEndpoint> endpoint,
                 const Settings& settings)
      : name_(std::move(name)),
        endpoint_(std::move(endpoint)),
        limit_(settings.reward_timeout),
        on_error_(settings.reward_on_error) {}

  const std::string& name() const override { return name_; }

  std::vector<Score> score(std::span<const CompletionView> completions) override {
    std::map<std::size_t, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < completions.size(); ++i) groups[completions[i].group].push_back(i);
    std::vector<Score> scores(completions.size());
    for (const auto& [group, members] : groups) {
      std::vector<const CompletionView*> views;
      for (const auto i : members) views.push_back(&completions[i]);
      const auto group_scores = score_group(views);
      for (std::size_t i = 0; i < members.size(); ++i) scores[members[i]] = group_scores[i];
    }
    return scores;
  }

 private:
  std::vector<Score> score_group(const std::vector<const CompletionView*>& group) {
    const auto limit = limit_ * static_cast<long>(group.size());
    try {
      const auto answer =
          endpoint_->request(request_line(group), std::chrono::steady_clock::now() + limit);
      return parse_scores(answer, group.size());
    } catch (const SandboxError& e) {
      throw RewardError(name_, e.what());  // about this machine, not about these completions
    } catch (const std::runtime_error& e) {
      const RewardError error(name_, e.what());
      if (on_error_ == OnError::stop) throw error;
      if (!warned_)
        fmt::print(
            stderr,
            "warning: {}; the completions of this group have no score (reward_on_error: none)\n",
            error.what());
      warned_ = true;
      return std::vector<Score>(group.size());
    }
  }

  std::string name_;
  std::unique_ptr<ScoringEndpoint> endpoint_;
  std::chrono::milliseconds limit_;
  OnError on_error_;
  bool warned_ = false;
};

bool is_address(const std::string& name) {
  return name.starts_with("http://") || name.starts_with("https://");
}

// A sandbox is started once now, so that a machine that cannot make one is noticed before the model
// is loaded and not after the first completions.
std::unique_ptr<ScoringEndpoint> make_child(ChildProgram program, const Settings& settings) {
  program.sandboxed = settings.reward_sandbox;
  if (program.sandboxed) check_sandbox(program.readable, program.folder);
  return std::make_unique<Child>(std::move(program));
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
std::unique_ptr<ScoringEndpoint> make_python_endpoint(const std::string& name,
                                                      const Settings& settings) {
  const auto colon = name.rfind(':');
  const auto function = name.substr(colon + 1);
  std::filesystem::path file = name.substr(0, colon);
  if (file.is_relative() && !settings.folder.empty()) file = settings.folder / file;
  if (function.empty())
    throw std::runtime_error(fmt::format("reward {}: the function name after the colon is missing",
                                         rendezvous::shown(name)));
  if (!std::filesystem::is_regular_file(file))
    throw std::runtime_error(
        fmt::format("reward {}: file {} does not exist", rendezvous::shown(name), file.string()));
  ChildProgram program{
      .argv = {settings.reward_python, "-c", kPythonProgram, file.string(), function},
      .announces_ready = true};
  // Python would import modules from the current folder first. (The program removes this variable.)
  if (!std::getenv("PYTHONSAFEPATH")) program.environment = {"PYTHONSAFEPATH=mgpu-train"};
  program.readable = program_paths(settings.reward_python);
  program.readable.push_back(file.string());
  program.readable.push_back(std::filesystem::absolute(file).parent_path().string());
  return make_child(std::move(program), settings);
}

}  // namespace

std::unique_ptr<Reward> make_endpoint_reward(std::string name,
                                             std::unique_ptr<ScoringEndpoint> endpoint,
                                             const Settings& settings) {
  return std::make_unique<EndpointReward>(std::move(name), std::move(endpoint), settings);
}

bool runs_program(const std::string& name) {
  return name.starts_with("cmd:") || (!is_address(name) && name.find(".py:") != name.npos);
}

std::unique_ptr<Reward> make_external_reward(const std::string& name, const Settings& settings) {
  if (name.starts_with("cmd:")) {
    const auto program = name.substr(
        name.find_first_not_of(' ', 4) == name.npos ? name.size() : name.find_first_not_of(' ', 4));
    if (program.empty()) throw std::runtime_error("reward cmd: has no program after the colon");
    return make_endpoint_reward(name,
                                make_child({.argv = {"/bin/sh", "-c", shell_line(program)},
                                            .command = program,
                                            .folder = settings.folder,
                                            .readable = program_paths(program)},
                                           settings),
                                settings);
  }
  if (is_address(name)) return make_endpoint_reward(name, make_http_endpoint(name), settings);
  if (name.find(".py:") != name.npos)
    return make_endpoint_reward(name, make_python_endpoint(name, settings), settings);
  return nullptr;
}

}  // namespace mgpu::rewards
