#pragma once

#include <cstdint>
#include <string>

#include "runtime/telemetry/report.hpp"
#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

// The values of the key "event" in a line of metrics.jsonl.
namespace event {
inline constexpr const char* kTrain = "train";
inline constexpr const char* kEval = "eval";
inline constexpr const char* kNote = "note";
inline constexpr const char* kCheckpoint = "checkpoint";
inline constexpr const char* kResume = "resume";
inline constexpr const char* kStart = "start";
inline constexpr const char* kSummary = "summary";
}  // namespace event

// The lines of metrics.jsonl. Each is an object with "event", "step" and "time" (seconds since
// 1970) and, except for notes, the values by name. A value that is not finite is null.
std::string train_line(const StepReport& report, double time);
std::string values_line(const char* event, std::int64_t step, double epoch, const Values& values,
                        double time);
std::string note_line(std::int64_t step, const std::string& text, double time);
std::string resume_line(std::int64_t step, std::int64_t dropped, double time);
std::string start_line(std::int64_t step, const StartReport& report, double time);
std::string checkpoint_line(const CheckpointReport& report, double time);

// A line of wandb-history.jsonl: "_step", "_timestamp" and the values under wandb's names. Values
// that are not finite are left out.
std::string wandb_line(std::int64_t step, double epoch, const Values& values, double time);

// The part of such a file that a run keeps when it resumes after `last_step`: up to the first line
// of a later step, without incomplete lines. `step_key` is the key of the step in a line. A missing
// file gives 0 bytes.
struct KeptLines {
  std::int64_t bytes = 0;
  std::int64_t dropped = 0;  // lines after them
};
KeptLines lines_to_keep(const std::string& path, std::int64_t last_step,
                        const char* step_key = "step");

// Renames an older run's file to a free name (path.1, path.2, ...) so that a new file begins empty.
// Returns the new name, or an empty string if there was no file.
std::string set_aside(const std::string& path);

}  // namespace mgpu::telemetry
