#include "runtime/commands/report_errors.hpp"

#include <signal.h>
#include <stdlib.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/config/command_line.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/lost_pages.hpp"
#include "runtime/train/failure_report.hpp"

namespace mgpu::recipes {
namespace {

// Usually every rank finds the same error in a recipe or in its files. The other ranks wait so that
// only rank 0 reports it: the launcher then stops them. If nobody stops them they report it too,
// because only their machine's file may be wrong.
void let_rank_0_report_first() {
  const char* rank = getenv(rendezvous::variable::kRank);
  if (rank != nullptr && *rank != '\0' && std::string_view(rank) != "0")
    std::this_thread::sleep_for(std::chrono::seconds(5));
}

}  // namespace

void refuse(const std::vector<std::string>& lines) {
  let_rank_0_report_first();
  for (const auto& line : lines)
    fprintf(stderr, "mgpu-train: %s\n", rendezvous::printable(line).c_str());
  std::fflush(nullptr);
  _Exit(exit_status::kUsage);
}

void end_process(int status) {
  const auto is_set = [](const char* name) {
    const char* const value = getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (is_set("LD_PRELOAD") || is_set("CUDA_INJECTION64_PATH") || is_set("NVTX_INJECTION64_PATH"))
    std::exit(status);
  std::fflush(nullptr);
  _Exit(status);
}

void finish_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (errno == EPIPE || errno == ECONNRESET) return;  // the reader has left, as `head` does
  throw std::runtime_error("cannot write to the standard output" +
                           (errno == 0 ? "" : ": " + rendezvous::error_text(errno)));
}

int report_errors(const std::function<int()>& run) {
  data::report_lost_pages([](const char* message) { train::fail(message); });
  ::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond a file size limit fails with a message
  try {
    return run();
  } catch (const train::UsageError& e) {
    let_rank_0_report_first();
    fprintf(stderr, "mgpu-train: %s\n", rendezvous::printable_output(e.what()).c_str());
    return exit_status::kUsage;
  } catch (const train::RecipeError& e) {
    refuse(e.lines());
  } catch (const rendezvous::InputError& e) {
    refuse({e.what()});
  } catch (const std::exception& e) {
    train::fail(e.what());
  }
}

}  // namespace mgpu::recipes
