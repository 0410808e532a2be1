#include "runtime/telemetry/event_folder.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "rendezvous/base/host_name.hpp"

namespace mgpu::telemetry {
namespace {

namespace fs = std::filesystem;

std::string date_and_host(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  char date[32] = "";
  if (::localtime_r(&seconds, &local)) std::strftime(date, sizeof date, "%b%d_%H-%M-%S", &local);
  return fmt::format("{}_{}", date, rendezvous::host_name());
}

// Turns a run name into the name of a single folder.
std::string as_folder(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name == "." || name == ".." ? "_" : name;
}

bool has_events(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error))
    if (at->path().filename().string().starts_with("events.out.tfevents.")) return true;
  return false;
}

std::string newest_with_events(const std::string& runs) {
  std::error_code error;
  fs::path newest;
  fs::file_time_type when;
  for (fs::directory_iterator at(runs, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code unknown;
    const auto changed = at->last_write_time(unknown);
    if (unknown || !has_events(at->path())) continue;
    if (newest.empty() || changed > when) {
      newest = at->path();
      when = changed;
    }
  }
  return newest;
}

}  // namespace

std::string event_folder(const std::string& output_dir, const std::string& logging_dir,
                         const std::string& run_name, bool resumed, double time) {
  if (!logging_dir.empty()) return logging_dir;
  const char* variable = std::getenv("TENSORBOARD_LOGGING_DIR");
  if (variable && *variable) return variable;
  const auto runs = output_dir + "/runs";
  if (resumed)
    if (auto newest = newest_with_events(runs); !newest.empty()) return newest;
  return runs + "/" + (run_name.empty() ? date_and_host(time) : as_folder(run_name));
}

}  // namespace mgpu::telemetry
