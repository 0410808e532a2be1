#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/lifecycle/error_file.hpp"

using namespace mgpu::launcher;

// Any error file and any end of stderr of a worker can be read, diagnosed and written again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto from_file = parse_error_file(text);
  if (from_file && !parse_error_file(to_json(*from_file))) std::abort();
  if (const auto found = python_exception_in(text); found && found->message.empty()) std::abort();

  for (const int signo : {0, 9, 6}) {
    const Cause cause =
        diagnose({.report = {.code = signo ? 0 : 1, .signal = Signal::numbered(signo)},
                  .error_file = from_file,
                  .stderr_tail = text});
    if (cause.kind == Cause::Kind::none) std::abort();
    if (cause.text.find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
