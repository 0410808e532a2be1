#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace mgpu::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How much memory an input may need: this many times its size, and a fixed amount besides.
inline constexpr std::size_t kMostTimes = 200;
inline constexpr std::size_t kMostBesides = std::size_t{64} << 20;

// One parser of outside input, and an input that is meant to cost it as much as possible.
struct Amplification {
  std::string name;
  std::function<std::string(std::size_t bytes)> input;  // about this long
  std::function<void(const std::string& input)> parse;  // may throw std::runtime_error: a rejection
  std::size_t bytes = 256 << 10;                        // of the smaller of two inputs
  std::size_t besides = kMostBesides;                   // fixed amount of memory
};

// Parses inputs of `bytes` and of twice as many bytes, each in a process of its own. Fails if the
// peak memory is above the limit, if twice the bytes take more than three times as long, or if the
// parser crashes or takes a minute. Under a sanitizer, which needs more memory and time, it only
// parses an eighth of the smaller one.
void check_amplification(const Amplification& one);

// Input of about `bytes` bytes: `head`, parts, `tail`.
std::string repeated(const std::string& head, const std::function<std::string(std::size_t)>& part,
                     const std::string& tail, std::size_t bytes);

// An input of many equal parts.
Amplification of_parts(const std::string& name, const std::string& head, const std::string& part,
                       const std::string& tail, void (*parse)(const std::string&));

// An input of many different parts: "{}" in the part is its number.
Amplification of_numbers(const std::string& name, const std::string& head, const std::string& part,
                         const std::string& tail, void (*parse)(const std::string&));

}  // namespace mgpu::tests
