#pragma once

#include <string>

#include "runtime/telemetry/output_file.hpp"
#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

// The results of a run, in the format and with the names of transformers' "***** train metrics
// *****".
std::string summary_text(const Summary& summary);

// Writes train_results.json, and adds its values and those of the last evaluation to
// all_results.json. Values of other programs in all_results.json are kept.
void write_results(const std::string& folder, const Values& train, const Values& last_eval,
                   const ErrorCallback& on_error);

}  // namespace mgpu::telemetry
