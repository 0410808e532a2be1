#pragma once

#include <string>
#include <string_view>

#include "runtime/data/columnar_plugin.h"

namespace mgpu::data {

// The plug-in for Parquet and Arrow files, which is loaded once and stays. Throws
// std::runtime_error that names the file and the command to run if it cannot be loaded.
const MgpuColumnarPlugin& columnar_plugin(const std::string& path, std::string_view format);

}  // namespace mgpu::data
