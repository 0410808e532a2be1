#include "tests/limits/amplification.hpp"

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <stdexcept>

#include "tests/support/catch.hpp"

namespace mgpu::tests {
namespace {

constexpr unsigned kMostSeconds = 60;
constexpr double kShortest = 0.08;  // seconds; below, the noise is larger than the work
constexpr rlim_t kAddressSpace = rlim_t{8} << 30;

enum Outcome : int { kParsed, kNoMemory, kOtherException };

struct Cost {
  std::size_t memory = 0;  // growth of the peak, in bytes
  double seconds = 0;      // of CPU
};

rusage usage() {
  rusage now{};
  ::getrusage(RUSAGE_SELF, &now);
  return now;
}

double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int parse(const Amplification& one, const std::string& input) {
  try {
    one.parse(input);
    return kParsed;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::runtime_error&) {
    return kParsed;
  } catch (const std::exception&) {
    return kOtherException;
  }
}

// In the child: a copy of this process, so its peak begins with the memory that this process has.
[[noreturn]] void measure(const Amplification& one, const std::string& input, int to) {
  ::alarm(kMostSeconds);
  const rlimit most{kAddressSpace, kAddressSpace};
  ::setrlimit(RLIMIT_AS, &most);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const rusage before = usage();
  const int outcome = parse(one, input);
  const rusage after = usage();
  const Cost cost{.memory = static_cast<std::size_t>(after.ru_maxrss - before.ru_maxrss) * 1024,
                  .seconds = cpu_seconds(after) - cpu_seconds(before)};
  const bool sent = ::write(to, &cost, sizeof cost) == sizeof cost;
  ::_exit(sent ? outcome : kOtherException);
}

Cost cost_of(const Amplification& one, const std::string& input) {
  ::malloc_trim(0);  // the copy's free memory would hide what the parser needs
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) measure(one, input, ends[1]);
  ::close(ends[1]);
  Cost cost;
  const auto got = ::read(ends[0], &cost, sizeof cost);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  CAPTURE(WIFSIGNALED(status) ? WTERMSIG(status) : 0);  // SIGALRM: it took a minute
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) != kNoMemory);
  REQUIRE(WEXITSTATUS(status) == kParsed);
  REQUIRE(got == sizeof cost);
  return cost;
}

void check_memory(const Amplification& one, const std::string& input, const Cost& cost) {
  const auto limit = kMostTimes * input.size() + one.besides;
  CAPTURE(input.size(), cost.memory, limit);
  CHECK(cost.memory <= limit);
}

}  // namespace

void check_amplification(const Amplification& one) {
  CAPTURE(one.name);
  if constexpr (kSanitized) {
    CHECK(parse(one, one.input(one.bytes / 8)) == kParsed);
    return;
  }
  const std::string small = one.input(one.bytes / 2);
  const std::string large = one.input(2 * one.bytes);
  REQUIRE(large.size() >= small.size());
  Cost first = cost_of(one, small), second = cost_of(one, large);
  check_memory(one, small, first);
  check_memory(one, large, second);
  // Four times the bytes take 4 times as long if the time is proportional, and 16 times as long if
  // it is quadratic. A machine that others share may be half as fast for a while: one of three
  // pairs is enough.
  const auto is_slow = [&] { return second.seconds > 8 * std::max(first.seconds, kShortest); };
  for (int tries = 0; tries < 2 && is_slow(); ++tries) {
    first = cost_of(one, small);
    second = cost_of(one, large);
  }
  CAPTURE(first.seconds, second.seconds);
  CHECK_FALSE(is_slow());
}

std::string repeated(const std::string& head, const std::function<std::string(std::size_t)>& part,
                     const std::string& tail, std::size_t bytes) {
  std::string text = head;
  for (std::size_t i = 0; text.size() + tail.size() < bytes; ++i) text += part(i);
  return text + tail;
}

Amplification of_parts(const std::string& name, const std::string& head, const std::string& part,
                       const std::string& tail, void (*parse_input)(const std::string&)) {
  const auto same = [part](std::size_t) { return part; };
  return {.name = name,
          .input = [=](std::size_t bytes) { return repeated(head, same, tail, bytes); },
          .parse = parse_input};
}

Amplification of_numbers(const std::string& name, const std::string& head, const std::string& part,
                         const std::string& tail, void (*parse_input)(const std::string&)) {
  const auto nth = [part](std::size_t i) {
    std::string text = part;
    for (auto at = text.find("{}"); at != text.npos; at = text.find("{}"))
      text.replace(at, 2, std::to_string(i));
    return text;
  };
  return {.name = name,
          .input = [=](std::size_t bytes) { return repeated(head, nth, tail, bytes); },
          .parse = parse_input};
}

}  // namespace mgpu::tests
