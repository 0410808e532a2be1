// The report of a node about the end of its ranks, and any message that carries it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/lifecycle/report.hpp"
#include "launcher/nodes/progress_json.hpp"
#include "rendezvous/protocol.hpp"

using namespace mgpu;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(input), size);
  const auto attempt = launcher::attempt_from_json(text);
  require(attempt.ranks.size() <= 4096);
  // An attempt that was read, written and read again is the same.
  const std::string written = launcher::attempt_to_json(attempt);
  require(launcher::attempt_to_json(launcher::attempt_from_json(written)) == written);
  launcher::JobResult end{.target = "x", .host = "h", .status = 1, .nodes = 2};
  end.attempts.push_back(attempt);
  require(!launcher::failure_report(end).empty());
  require(!launcher::report_json(end).empty());
  launcher::restart_line(attempt, {}, 3);
  const auto progress = launcher::progress_from_json(text);
  require(launcher::progress_from_json(launcher::progress_to_json(progress).dump()) == progress);
  try {
    const auto message = rendezvous::decode(text);
    const std::string again = rendezvous::encode(message);
    require(rendezvous::encode(rendezvous::decode(again)) == again);
  } catch (const rendezvous::ProtocolError& error) {
    require(*error.what() != '\0');
  }
  return 0;
}
