#include "runtime/rl/completion_bytes.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace mgpu::rl {
namespace {

// A reward that does not apply is a 0 with this before it.
enum class HasValue : std::uint8_t { no, yes };

class ByteWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_all(&value, 1);
  }
  template <class List>
  void put_list(const List& list) {
    put(static_cast<std::uint64_t>(list.size()));
    put_all(list.data(), list.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class T>
  void put_all(const T* values, std::size_t count) {
    const auto* begin = reinterpret_cast<const std::byte*>(values);
    bytes_.insert(bytes_.end(), begin, begin + count * sizeof(T));
  }

  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, next(1, sizeof value), sizeof value);
    return value;
  }
  template <class List>
  void get_list(List& list) {
    const auto count = get<std::uint64_t>();
    const auto* bytes = next(count, sizeof list[0]);
    list.resize(count);
    if (count > 0) std::memcpy(list.data(), bytes, count * sizeof list[0]);
  }
  bool at_end() const { return left_.empty(); }

 private:
  const std::byte* next(std::uint64_t count, std::size_t size) {
    if (count > left_.size() / size)
      throw std::runtime_error("the completions of another rank are incomplete");
    const auto* begin = left_.data();
    left_ = left_.subspan(count * size);
    return begin;
  }

  std::span<const std::byte> left_;
};

void put_completion(ByteWriter& to, const ScoredCompletion& completion) {
  to.put(completion.prompt);
  to.put_list(completion.tokens);
  to.put_list(completion.sampler_log_probs);
  to.put_list(completion.old_log_probs);
  to.put_list(completion.ref_log_probs);
  to.put_list(completion.text);
  to.put(completion.terminated);
  to.put(static_cast<std::uint64_t>(completion.rewards.size()));
  for (const auto& reward : completion.rewards) {
    to.put(reward ? HasValue::yes : HasValue::no);
    to.put(reward.value_or(0));
  }
  to.put(completion.advantage);
}

ScoredCompletion get_completion(ByteReader& from) {
  ScoredCompletion completion;
  completion.prompt = from.get<std::uint32_t>();
  from.get_list(completion.tokens);
  from.get_list(completion.sampler_log_probs);
  from.get_list(completion.old_log_probs);
  from.get_list(completion.ref_log_probs);
  from.get_list(completion.text);
  completion.terminated = from.get<bool>();
  for (auto count = from.get<std::uint64_t>(); count > 0; --count) {
    const bool has = from.get<HasValue>() == HasValue::yes;
    const auto value = from.get<double>();
    completion.rewards.push_back(has ? std::optional(value) : std::nullopt);
  }
  completion.advantage = from.get<double>();
  return completion;
}

}  // namespace

std::vector<std::byte> to_bytes(std::span<const ScoredCompletion> completions) {
  ByteWriter to;
  for (const auto& completion : completions) put_completion(to, completion);
  return to.take();
}

std::vector<ScoredCompletion> completions_from(std::span<const std::byte> bytes) {
  ByteReader from(bytes);
  std::vector<ScoredCompletion> completions;
  while (!from.at_end()) completions.push_back(get_completion(from));
  return completions;
}

}  // namespace mgpu::rl
