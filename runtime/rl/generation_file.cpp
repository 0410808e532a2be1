#include "runtime/rl/generation_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::rl {
namespace {

using checkpoint::DType;
using Completions = std::vector<ScoredCompletion>;

constexpr double kNoReward = std::numeric_limits<double>::quiet_NaN();

template <class T>
constexpr DType kTypeOf = DType::u8;
template <>
constexpr DType kTypeOf<std::int32_t> = DType::i32;
template <>
constexpr DType kTypeOf<std::uint32_t> = DType::u32;
template <>
constexpr DType kTypeOf<std::int64_t> = DType::i64;
template <>
constexpr DType kTypeOf<float> = DType::f32;
template <>
constexpr DType kTypeOf<double> = DType::f64;

// Collects one-dimensional tensors and writes them.
class Columns {
 public:
  template <class T>
  void add(const std::string& name, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    plan_.push_back({name, kTypeOf<T>, {static_cast<std::int64_t>(values.size())}});
    bytes_.emplace_back(bytes.begin(), bytes.end());
  }

  // One value per completion.
  template <class T, class Get>
  void add_each(const std::string& name, const Completions& completions, const Get& get) {
    std::vector<T> values;
    for (const auto& completion : completions) values.push_back(static_cast<T>(get(completion)));
    add(name, values);
  }

  // A list per completion: all values in one tensor, and where each list ends.
  template <class T, class Get>
  void add_lists(const std::string& name, const Completions& completions, const Get& get) {
    std::vector<T> values;
    std::vector<std::int64_t> ends;
    for (const auto& completion : completions) {
      for (const auto& value : get(completion)) values.push_back(static_cast<T>(value));
      ends.push_back(static_cast<std::int64_t>(values.size()));
    }
    add(name, values);
    add(name + "_ends", ends);
  }

  void write(const std::string& path) const {
    checkpoint::SafetensorsWriter writer(path, plan_);
    for (std::size_t i = 0; i < plan_.size(); ++i) writer.write(plan_[i].name, bytes_[i]);
    writer.finish();
  }

 private:
  std::vector<checkpoint::TensorPlan> plan_;
  std::vector<std::vector<std::byte>> bytes_;
};

class CompletionsFile {
 public:
  explicit CompletionsFile(const std::string& path) : file_(path) {}

  template <class T>
  std::vector<T> values(const std::string& name) const {
    const auto* entry = file_.find(name);
    if (entry == nullptr || entry->dtype != kTypeOf<T> || entry->shape.size() != 1)
      fail(name, "is missing or has another type");
    const auto bytes = file_.bytes(*entry);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  template <class T, class Set>
  void each(const std::string& name, Completions& completions, const Set& set) const {
    const auto all = values<T>(name);
    if (all.size() != completions.size()) fail(name, "has another number of completions");
    for (std::size_t i = 0; i < all.size(); ++i) set(completions[i], all[i]);
  }

  template <class T, class Set>
  void lists(const std::string& name, Completions& completions, const Set& set) const {
    const auto all = values<T>(name);
    const auto ends = values<std::int64_t>(name + "_ends");
    if (ends.size() != completions.size()) fail(name, "has another number of completions");
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] < begin || ends[i] > static_cast<std::int64_t>(all.size()))
        fail(name + "_ends", "does not match " + name);
      set(completions[i], std::span(all).subspan(static_cast<std::size_t>(begin),
                                                 static_cast<std::size_t>(ends[i] - begin)));
      begin = ends[i];
    }
    if (begin != static_cast<std::int64_t>(all.size()))
      fail(name + "_ends", "does not match " + name);
  }

  [[noreturn]] void fail(const std::string& name, const std::string& why) const {
    throw rendezvous::InputError(fmt::format("{}: tensor {} {}", file_.path(), name, why));
  }

 private:
  checkpoint::SafetensorsFile file_;
};

}  // namespace

void write_completions(const std::string& path, const Completions& completions) {
  using S = ScoredCompletion;
  Columns columns;
  columns.add_each<std::uint32_t>("prompt", completions, [](const S& s) { return s.prompt; });
  columns.add_each<std::uint8_t>("terminated", completions,
                                 [](const S& s) { return s.terminated; });
  columns.add_each<double>("advantage", completions, [](const S& s) { return s.advantage; });
  columns.add_lists<std::int32_t>("tokens", completions, [](const S& s) { return s.tokens; });
  columns.add_lists<float>("sampler_log_probs", completions,
                           [](const S& s) { return s.sampler_log_probs; });
  columns.add_lists<float>("old_log_probs", completions,
                           [](const S& s) { return s.old_log_probs; });
  columns.add_lists<float>("ref_log_probs", completions,
                           [](const S& s) { return s.ref_log_probs; });
  columns.add_lists<std::uint8_t>("text", completions, [](const S& s) { return s.text; });
  columns.add_lists<double>("rewards", completions, [](const S& s) {
    std::vector<double> rewards;
    for (const auto& reward : s.rewards) rewards.push_back(reward.value_or(kNoReward));
    return rewards;
  });
  columns.write(path);
}

Completions read_completions(const std::string& path) {
  using S = ScoredCompletion;
  const CompletionsFile file(path);
  Completions all(file.values<std::uint32_t>("prompt").size());
  file.each<std::uint32_t>("prompt", all, [](S& s, std::uint32_t prompt) { s.prompt = prompt; });
  file.each<std::uint8_t>("terminated", all, [](S& s, std::uint8_t x) { s.terminated = x != 0; });
  file.each<double>("advantage", all, [](S& s, double advantage) { s.advantage = advantage; });
  file.lists<std::int32_t>("tokens", all,
                           [](S& s, auto list) { s.tokens.assign(list.begin(), list.end()); });
  const auto log_probs = [&](const char* name, std::vector<float> S::* to) {
    file.lists<float>(name, all,
                      [to](S& s, auto list) { (s.*to).assign(list.begin(), list.end()); });
    for (const auto& completion : all)
      if (const auto size = (completion.*to).size(); size > 0 && size != completion.tokens.size())
        file.fail(name, "has another number of tokens");
  };
  log_probs("sampler_log_probs", &S::sampler_log_probs);
  log_probs("old_log_probs", &S::old_log_probs);
  log_probs("ref_log_probs", &S::ref_log_probs);
  file.lists<std::uint8_t>("text", all,
                           [](S& s, auto list) { s.text.assign(list.begin(), list.end()); });
  file.lists<double>("rewards", all, [](S& s, auto list) {
    for (const double reward : list)
      s.rewards.push_back(std::isnan(reward) ? std::nullopt : std::optional(reward));
  });
  return all;
}

}  // namespace mgpu::rl
