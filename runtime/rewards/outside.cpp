#include "runtime/rewards/outside.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "rendezvous/base/spelling.hpp"
#include "runtime/rewards/child.hpp"
#include "runtime/rewards/python_program.hpp"

namespace mgpu::rewards {
namespace {

using nlohmann::json;

constexpr std::size_t kShown = 160;  // bytes of what others wrote

// A row without a prompt of its own has had one made of its question, as messages.
bool is_conversation(const json& row) {
  const auto prompt = row.find("prompt");
  return prompt == row.end() || prompt->is_array();
}

json prompt_of(const json& row) {
  if (const auto prompt = row.find("prompt"); prompt != row.end()) return *prompt;
  for (const auto* column : {"problem", "question"})
    if (const auto found = row.find(column); found != row.end())
      return json::array({{{"role", "user"}, {"content", *found}}});
  return nullptr;
}

json completion_of(const Scored& s) {
  std::string text(s.completion);
  if (!is_conversation(*s.row)) return text;
  return json::array({{{"role", "assistant"}, {"content", std::move(text)}}});
}

class Asking : public Reward {
 public:
  Asking(std::string name, std::unique_ptr<Correspondent> who, const Settings& settings)
      : name_(std::move(name)),
        who_(std::move(who)),
        limit_(settings.reward_timeout),
        on_error_(settings.reward_on_error) {}

  const std::string& name() const override { return name_; }

  std::vector<Score> score(std::span<const Scored> completions) override {
    std::map<std::size_t, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < completions.size(); ++i) groups[completions[i].group].push_back(i);
    std::vector<Score> scores(completions.size());
    for (const auto& [group, members] : groups) {
      std::vector<const Scored*> asked;
      for (const auto i : members) asked.push_back(&completions[i]);
      const auto given = ask(asked);
      for (std::size_t i = 0; i < members.size(); ++i) scores[members[i]] = given[i];
    }
    return scores;
  }

 private:
  std::vector<Score> ask(const std::vector<const Scored*>& group) {
    const auto limit = limit_ * static_cast<long>(group.size());
    try {
      const auto answer = who_->ask(question_of(group), std::chrono::steady_clock::now() + limit);
      return scores_in(answer, group.size());
    } catch (const std::runtime_error& e) {
      const RewardError error(name_, e.what());
      if (on_error_ == OnError::stop) throw error;
      if (!told_)
        fmt::print(stderr, "warning: {}; its completions get no score (reward_on_error: none)\n",
                   error.what());
      told_ = true;
      return std::vector<Score>(group.size());
    }
  }

  std::string name_;
  std::unique_ptr<Correspondent> who_;
  std::chrono::milliseconds limit_;
  OnError on_error_;
  bool told_ = false;
};

// ./my_rewards.py:fn
std::unique_ptr<Correspondent> python_function(const std::string& name, const Settings& settings) {
  const auto colon = name.rfind(':');
  const auto function = name.substr(colon + 1);
  std::filesystem::path file = name.substr(0, colon);
  if (file.is_relative() && !settings.folder.empty()) file = settings.folder / file;
  if (function.empty())
    throw std::runtime_error(fmt::format("reward {}: the name of a function is missing behind :",
                                         rendezvous::shown(name)));
  if (!std::filesystem::is_regular_file(file))
    throw std::runtime_error(
        fmt::format("reward {}: there is no file {}", rendezvous::shown(name), file.string()));
  return std::make_unique<Child>(
      ChildProgram{.argv = {settings.reward_python, "-c", kPythonProgram, file.string(), function},
                   .announces = true});
}

}  // namespace

std::string question_of(std::span<const Scored* const> group) {
  json columns = json::object();
  for (const auto* s : group)
    for (const auto& [column, value] : s->row->items())
      if (column != "prompt" && column != "completion" && !columns.contains(column))
        columns[column] = json::array();
  json question = {{"prompts", json::array()},
                   {"completions", json::array()},
                   {"completion_ids", json::array()},
                   {"truncated", json::array()}};
  for (const auto* s : group) {
    question["prompts"].push_back(prompt_of(*s->row));
    question["completions"].push_back(completion_of(*s));
    question["completion_ids"].push_back(std::vector<int>(s->ids.begin(), s->ids.end()));
    question["truncated"].push_back(s->truncated);
    for (auto& [column, values] : columns.items())
      values.push_back(s->row->contains(column) ? (*s->row)[column] : json());
  }
  question["columns"] = std::move(columns);
  return question.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<Score> scores_in(const std::string& answer, std::size_t count) {
  const auto parsed = json::parse(answer, nullptr, false);
  if (parsed.is_discarded())
    throw std::runtime_error("its answer is no JSON: " + rendezvous::shown(answer, kShown));
  if (parsed.is_object() && parsed.contains("error"))
    throw std::runtime_error("it failed: " +
                             rendezvous::shown(parsed["error"].is_string()
                                                   ? parsed["error"].get<std::string>()
                                                   : parsed["error"].dump(),
                                               1000));
  if (!parsed.is_object() || !parsed.contains("scores") || !parsed["scores"].is_array())
    throw std::runtime_error("its answer has no list of scores: " +
                             rendezvous::shown(answer, kShown));
  const auto& list = parsed["scores"];
  if (list.size() != count)
    throw std::runtime_error(
        fmt::format("it gave {} scores for {} completions", list.size(), count));
  std::vector<Score> scores;
  for (const auto& value : list) {
    if (value.is_null()) {
      scores.push_back(std::nullopt);
      continue;
    }
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      throw std::runtime_error(fmt::format("its score of completion {} is {}, no finite number",
                                           scores.size() + 1, rendezvous::shown(value.dump())));
    scores.push_back(value.get<double>());
  }
  return scores;
}

std::unique_ptr<Reward> make_asking_reward(std::string name, std::unique_ptr<Correspondent> who,
                                           const Settings& settings) {
  return std::make_unique<Asking>(std::move(name), std::move(who), settings);
}

std::unique_ptr<Reward> make_outside_reward(const std::string& name, const Settings& settings) {
  if (name.starts_with("cmd:")) {
    const auto program = name.substr(
        name.find_first_not_of(' ', 4) == name.npos ? name.size() : name.find_first_not_of(' ', 4));
    if (program.empty()) throw std::runtime_error("reward cmd: has no program behind it");
    return make_asking_reward(name,
                              std::make_unique<Child>(ChildProgram{
                                  .argv = {"/bin/sh", "-c", "exec " + program},
                                  .folder = settings.folder,
                              }),
                              settings);
  }
  if (name.starts_with("http://"))
    return make_asking_reward(name, make_http_correspondent(name), settings);
  if (name.starts_with("https://"))
    throw std::runtime_error(fmt::format(
        "reward {}: https is not spoken; put a proxy on this machine before it and use http",
        rendezvous::shown(name)));
  if (name.find(".py:") != name.npos)
    return make_asking_reward(name, python_function(name, settings), settings);
  return nullptr;
}

}  // namespace mgpu::rewards
