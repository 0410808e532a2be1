#pragma once

#include <string>

namespace mgpu::train {

// The reference of all keys as Markdown: what docs/training.md holds below its mark, and what
// `mgpu-train keys` prints.
std::string keys_markdown();

}  // namespace mgpu::train
