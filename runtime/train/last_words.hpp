#pragma once

#include <string>

namespace mgpu::train {

// Says why this rank ends, on stderr and, where the launcher named a file for it, in the form that
// it reads: TORCHELASTIC_ERROR_FILE's.
void leave_last_words(const std::string& message) noexcept;

}  // namespace mgpu::train
