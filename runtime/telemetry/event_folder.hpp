#pragma once

#include <string>

namespace mgpu::telemetry {

// Where TensorBoard's files of a run go: to `logging_dir`, else to $TENSORBOARD_LOGGING_DIR, else
// below output_dir/runs, where a resumed run goes on in the newest folder that has events and a new
// one makes its own: `run_name`, or month, time and host as transformers names them.
std::string event_folder(const std::string& output_dir, const std::string& logging_dir,
                         const std::string& run_name, bool resumed, double time);

}  // namespace mgpu::telemetry
