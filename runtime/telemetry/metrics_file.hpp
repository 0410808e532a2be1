#pragma once

#include <cstdint>
#include <string>

#include "runtime/telemetry/report.hpp"
#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

// What a line of metrics.jsonl speaks of, in its key "event".
namespace event {
inline constexpr const char* kTrain = "train";
inline constexpr const char* kEval = "eval";
inline constexpr const char* kNote = "note";
inline constexpr const char* kResume = "resume";
inline constexpr const char* kSummary = "summary";
}  // namespace event

// The lines of metrics.jsonl, each one object with "event", "step" and "time" (seconds since 1970)
// and, but for notes, the values by their names. A value that is no number is null.
std::string train_line(const StepReport& report, double time);
std::string values_line(const char* event, std::int64_t step, double epoch, const Values& values,
                        double time);
std::string note_line(std::int64_t step, const std::string& text, double time);
std::string resume_line(std::int64_t step, std::int64_t dropped, double time);

// A line of wandb-history.jsonl: "_step", "_timestamp" and wandb's names; values that are no
// numbers are left out.
std::string wandb_line(std::int64_t step, double epoch, const Values& values, double time);

// How many bytes of such a file a run that goes on behind `last_step` keeps: up to the first line
// of a later step, and no line that was not written to its end. `step_key` is what the lines call
// their step. A file that is not there has none.
struct Kept {
  std::int64_t bytes = 0;
  std::int64_t dropped = 0;  // lines behind them
};
Kept lines_to_keep(const std::string& path, std::int64_t last_step, const char* step_key = "step");

// Gives an older run's file a name that is free, path.1 and so on, so that a new one begins empty.
// Says what it became; empty when there was none.
std::string set_aside(const std::string& path);

}  // namespace mgpu::telemetry
