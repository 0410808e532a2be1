#pragma once

#include <string>

namespace mgpu::train {

// The reference of all keys as Markdown: the part of docs/keys.md below its mark, and the output of
// `mgpu-train keys`.
std::string keys_markdown();

}  // namespace mgpu::train
