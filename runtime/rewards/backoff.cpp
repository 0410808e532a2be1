#include "runtime/rewards/backoff.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iomanip>
#include <locale>
#include <sstream>

namespace mgpu::rewards {

using namespace std::chrono_literals;

std::optional<std::chrono::seconds> requested_wait(const std::string& retry_after,
                                                   std::time_t now) {
  constexpr std::int64_t kLongest = 365 * 86400;
  constexpr std::size_t kDateLength = 29;  // std::get_time accepts less
  std::int64_t number = 0;
  const auto* const last = retry_after.data() + retry_after.size();
  const auto [end, error] = std::from_chars(retry_after.data(), last, number);
  if (error == std::errc() && end == last && number >= 0)
    return std::chrono::seconds(std::min(number, kLongest));
  std::istringstream text(retry_after);
  text.imbue(std::locale::classic());
  std::tm date{};
  text >> std::get_time(&date, "%a, %d %b %Y %H:%M:%S GMT");
  if (text.fail() || retry_after.size() != kDateLength) return std::nullopt;
  const auto wait = static_cast<std::int64_t>(::timegm(&date)) - static_cast<std::int64_t>(now);
  return std::chrono::seconds(std::clamp<std::int64_t>(wait, 0, kLongest));
}

std::chrono::milliseconds usual_wait(int repetition) {
  constexpr auto kFirst = 500ms, kLongest = 30'000ms;
  return std::min(kFirst * (1 << std::clamp(repetition, 0, 10)), kLongest);
}

}  // namespace mgpu::rewards
