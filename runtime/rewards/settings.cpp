#include "runtime/rewards/settings.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rewards {
namespace {

using nlohmann::json;
using Set = std::function<void(Settings&, const json&)>;

[[noreturn]] void refuse_setting(const std::string& key, const std::string& what) {
  throw rendezvous::InputError(fmt::format("{} must be {}", key, what));
}

double number_of(const std::string& key, const json& value) {
  if (!value.is_number()) refuse_setting(key, "a number");
  return value.get<double>();
}

int whole_of(const std::string& key, const json& value) {
  const double number = number_of(key, value);
  if (number != std::floor(number) || std::abs(number) > 1e9) refuse_setting(key, "an integer");
  return static_cast<int>(number);
}

std::string text_of(const std::string& key, const json& value) {
  if (!value.is_string()) refuse_setting(key, "text");
  return value.get<std::string>();
}

template <class Member>
Set number_into(const std::string& key, Member member) {
  return [=](Settings& s, const json& v) { s.*member = number_of(key, v); };
}

template <class Member>
Set whole_into(const std::string& key, Member member) {
  return [=](Settings& s, const json& v) { s.*member = whole_of(key, v); };
}

void set_scope(Settings& s, const json& value) {
  const auto scope = text_of("length_scope", value);
  if (scope != "group" && scope != "batch") refuse_setting("length_scope", "group or batch");
  s.length_scope = scope == "group" ? LengthScope::group : LengthScope::batch;
}

void set_on_error(Settings& s, const json& value) {
  const auto what = text_of("reward_on_error", value);
  if (what != "stop" && what != "none") refuse_setting("reward_on_error", "stop or none");
  s.reward_on_error = what == "stop" ? OnError::stop : OnError::none;
}

void set_timeout(Settings& s, const json& value) {
  const double seconds = number_of("reward_timeout", value);
  if (!(seconds >= 0.001 && seconds <= 86400))
    refuse_setting("reward_timeout", "0.001 to 86400 seconds");
  s.reward_timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
}

void set_sandbox(Settings& s, const json& value) {
  if (!value.is_boolean()) refuse_setting("reward_sandbox", "true or false");
  s.reward_sandbox = value.get<bool>();
}

void set_rules(Settings& s, const json& value) {
  if (!value.is_object()) refuse_setting("reward_rules", "a mapping of names to rules");
  s.reward_rules = value;
}

void set_delimiters(Settings& s, const json& value) {
  const bool fits = value.is_array() && !value.empty() &&
                    std::all_of(value.begin(), value.end(), [](const json& one) {
                      return one.is_string() && !one.get_ref<const std::string&>().empty();
                    });
  if (!fits) refuse_setting("reasoning_delimiters", "a list of non-empty texts");
  s.reasoning_delimiters = value.get<std::vector<std::string>>();
}

const std::map<std::string, Set>& keys() {
  static const std::map<std::string, Set> table = [] {
    std::map<std::string, Set> t;
    const auto number = [&](const char* key, auto member) { t[key] = number_into(key, member); };
    const auto whole = [&](const char* key, auto member) { t[key] = whole_into(key, member); };
    number("cosine_min_value_wrong", &Settings::cosine_min_value_wrong);
    number("cosine_max_value_wrong", &Settings::cosine_max_value_wrong);
    number("cosine_min_value_correct", &Settings::cosine_min_value_correct);
    number("cosine_max_value_correct", &Settings::cosine_max_value_correct);
    whole("cosine_max_len", &Settings::cosine_max_len);
    whole("repetition_n_grams", &Settings::repetition_n_grams);
    number("repetition_max_penalty", &Settings::repetition_max_penalty);
    whole("max_completion_len", &Settings::max_completion_len);
    whole("soft_punish_cache", &Settings::soft_punish_cache);
    whole("reward_concurrency", &Settings::reward_concurrency);
    t["length_scope"] = set_scope;
    t["reward_on_error"] = set_on_error;
    t["reward_timeout"] = set_timeout;
    t["reward_sandbox"] = set_sandbox;
    t["reward_rules"] = set_rules;
    t["reasoning_delimiters"] = set_delimiters;
    t["info_file"] = [](Settings& s, const json& v) { s.info_file = text_of("info_file", v); };
    t["ada_path"] = [](Settings& s, const json& v) { s.ada_path = text_of("ada_path", v); };
    t["reward_python"] = [](Settings& s, const json& v) {
      s.reward_python = text_of("reward_python", v);
    };
    return t;
  }();
  return table;
}

}  // namespace

Settings read_settings(const json& values) {
  if (!values.is_object()) throw rendezvous::InputError("reward settings must be a mapping");
  Settings settings;
  for (const auto& [key, value] : values.items()) {
    const auto known = keys().find(key);
    if (known == keys().end()) {
      std::vector<std::string> names;
      for (const auto& [name, set] : keys()) names.push_back(name);
      const auto near = rendezvous::nearest(key, names);
      throw rendezvous::InputError(fmt::format("unknown reward setting {}{}",
                                               rendezvous::shown(key),
                                               near.empty() ? "" : "; did you mean " + near + "?"));
    }
    known->second(settings, value);
  }
  check(settings);
  return settings;
}

}  // namespace mgpu::rewards
