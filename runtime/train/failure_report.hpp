#pragma once

#include <string>

namespace mgpu::train {

// Reports why this rank fails: prints `message` on stderr and, if the launcher set
// TORCHELASTIC_ERROR_FILE, writes it to that file in torchelastic's format, which the launcher
// reads.
void write_failure_report(const std::string& message) noexcept;

// Writes the report and ends the process with exit status 1, without destructors. Connections to
// other ranks stay open until then: a rank that fails because they break fails later than this one.
[[noreturn]] void fail(const std::string& message) noexcept;

}  // namespace mgpu::train
