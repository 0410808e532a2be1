#include "runtime/commands/report_errors.hpp"

#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string_view>
#include <thread>

#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/config/command_line.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/lost_pages.hpp"
#include "runtime/train/failure_report.hpp"

namespace mgpu::recipes {
namespace {

// Every rank finds the same error in a recipe. The other ranks wait so that only rank 0 reports it:
// the launcher then stops them. If nobody stops them they report it too, because only their
// machine's file may be wrong.
void let_rank_0_report_first() {
  const char* rank = getenv(rendezvous::variable::kRank);
  if (rank != nullptr && *rank != '\0' && std::string_view(rank) != "0")
    std::this_thread::sleep_for(std::chrono::seconds(5));
}

}  // namespace

int report_errors(const std::function<int()>& run) {
  data::report_lost_pages([](const char* message) { train::fail(message); });
  ::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond a file size limit fails with a message
  try {
    return run();
  } catch (const train::UsageError& e) {
    let_rank_0_report_first();
    fprintf(stderr, "mgpu-train: %s\n", e.what());
    return exit_status::kUsage;
  } catch (const train::RecipeError& e) {
    let_rank_0_report_first();
    for (const auto& line : e.lines()) fprintf(stderr, "mgpu-train: %s\n", line.c_str());
    // No destructors: threads may be opening the GPU or connecting to other ranks.
    std::fflush(nullptr);
    _Exit(exit_status::kUsage);
  } catch (const std::exception& e) {
    train::fail(e.what());
  }
}

}  // namespace mgpu::recipes
