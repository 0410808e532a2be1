#pragma once

#include <string>

namespace mgpu::train {

// Says why this rank ends, on stderr and, where the launcher named a file for it, in the form that
// it reads: TORCHELASTIC_ERROR_FILE's.
void write_failure_report(const std::string& message) noexcept;

}  // namespace mgpu::train
