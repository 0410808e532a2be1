#include "runtime/train/failure_report.hpp"

#include <stdlib.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::train {

void write_failure_report(const std::string& message) noexcept {
  try {
    fprintf(stderr, "mgpu-train: %s\n", rendezvous::printable_output(message).c_str());
  } catch (...) {  // out of memory
    fprintf(stderr, "mgpu-train: %s\n", message.c_str());
  }
  const char* path = getenv(rendezvous::variable::kErrorFile);
  if (path == nullptr || *path == '\0') return;
  try {
    const nlohmann::json error{
        {"message",
         {{"message", message},
          {"extraInfo",
           {{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}}}}}};
    std::ofstream(path) << error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } catch (...) {  // the message is on stderr already
  }
}

void fail(const std::string& message) noexcept {
  // LibTorch appends a stack trace to its messages.
  write_failure_report(message.substr(0, message.find("\nException raised from")));
  std::fflush(nullptr);
  _Exit(exit_status::kFailure);
}

}  // namespace mgpu::train
