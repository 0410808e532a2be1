#include "rendezvous/base/signal_names.hpp"

#include <signal.h>
#include <string.h>
#include <strings.h>

#include <fmt/format.h>

namespace mgpu::rendezvous {

std::string signal_name(int signo) {
  const char* name = ::sigabbrev_np(signo);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signo);
}

int signal_number(std::string_view name) {
  const std::string text(name);
  const char* wanted = text.c_str();
  if (::strncasecmp(wanted, "SIG", 3) == 0) wanted += 3;
  for (int number = 1; number < NSIG; ++number)
    if (const char* known = ::sigabbrev_np(number); known && ::strcasecmp(known, wanted) == 0)
      return number;
  return 0;
}

}  // namespace mgpu::rendezvous
