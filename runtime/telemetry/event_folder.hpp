#pragma once

#include <string>

namespace mgpu::telemetry {

// The folder for a run's TensorBoard files: `logging_dir`, else $TENSORBOARD_LOGGING_DIR, else a
// folder in output_dir/runs. There, a resumed run continues in the newest folder that has events,
// and a new run uses a new folder, named `run_name`, or by date, time and host like transformers.
std::string event_folder(const std::string& output_dir, const std::string& logging_dir,
                         const std::string& run_name, bool resumed, double time);

}  // namespace mgpu::telemetry
