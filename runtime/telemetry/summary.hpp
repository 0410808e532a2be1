#pragma once

#include <string>

#include "runtime/telemetry/output_file.hpp"
#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

// What a run came to, in the form and names of transformers' "***** train metrics *****".
std::string summary_text(const Summary& summary);

// Writes train_results.json, and all_results.json with these and the last evaluation's values
// beside what other programs have put there.
void write_results(const std::string& folder, const Values& train, const Values& last_eval,
                   const Complain& complain);

}  // namespace mgpu::telemetry
