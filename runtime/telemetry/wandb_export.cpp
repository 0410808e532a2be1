#include "runtime/telemetry/wandb_export.hpp"

#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/telemetry/metrics_file.hpp"

namespace mgpu::telemetry {
namespace {

// A JSON string is also a Python string, as long as non-ASCII characters are not escaped.
std::string python_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

WandbExport::WandbExport(const std::string& folder, const WandbRun& run, std::int64_t resume_step,
                         double time, const ErrorCallback& on_error) {
  const auto path = folder + "/wandb-history.jsonl";
  const auto program = folder + "/wandb-sync.py";
  const bool resumed = resume_step > 0 && std::filesystem::exists(program);
  if (!resumed) {
    set_aside(path);
    const auto id = fmt::format("mgpu-{:x}-{}", static_cast<std::int64_t>(time * 1000), ::getpid());
    replace_file(program, wandb_sync_program(id, run), on_error);
  }
  const std::int64_t keep = resumed ? lines_to_keep(path, resume_step, "_step").bytes : -1;
  history_ = OutputFile(path, on_error, keep);
  upload_hint_ = fmt::format(
      "wandb: metrics are written to files only; to upload them, run on a machine where wandb is "
      "installed and logged in: python {}",
      program);
}

void WandbExport::add(std::int64_t step, double epoch, const Values& values, double time) {
  history_.append(wandb_line(step, epoch, values, time));
}

std::string wandb_sync_program(const std::string& id, const WandbRun& run) {
  const auto or_none = [](const std::string& text) {
    return text.empty() ? "None" : python_string(text);
  };
  return fmt::format(R"(import json, pathlib, wandb
run = wandb.init(id={}, name={}, project={}, resume="allow")
for line in open(pathlib.Path(__file__).parent / "wandb-history.jsonl", encoding="utf-8"):
    row = json.loads(line)
    run.log(row, step=row.pop("_step"))
run.finish()
)",
                     python_string(id), or_none(run.name), or_none(run.project));
}

}  // namespace mgpu::telemetry
