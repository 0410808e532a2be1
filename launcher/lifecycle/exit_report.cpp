#include "launcher/lifecycle/exit_report.hpp"

#include <sys/wait.h>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/signal_names.hpp"

namespace mgpu::launcher {

ExitReport decode_wait_status(int status) {
  if (WIFSIGNALED(status))
    return {.signal = Signal::numbered(WTERMSIG(status)), .core_dumped = WCOREDUMP(status) != 0};
  return {.code = WEXITSTATUS(status)};
}

std::string describe(const ExitReport& report) {
  if (report.exec_error != 0)
    return fmt::format("could not be started: {}", rendezvous::error_text(report.exec_error));
  if (report.signal)
    return fmt::format("was killed by {} (signal {}){}",
                       rendezvous::signal_name(report.signal.number()), report.signal.number(),
                       report.core_dumped ? ", core dumped" : "");
  if (report.code == 0) return "exited normally";
  return fmt::format("exited with status {}", report.code);
}

}  // namespace mgpu::launcher
