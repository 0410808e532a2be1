#include "runtime/hub/provide.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>

#include "runtime/hub/download_lock.hpp"
#include "runtime/hub/program.hpp"
#include "runtime/hub/running_download.hpp"

namespace mgpu::hub {
namespace {

using Clock = std::chrono::steady_clock;

HubError cannot(const Repository& repository, const std::string& why, bool passing = false) {
  return {fmt::format("cannot download {} {}: {}", noun(repository), repository.name, why),
          passing};
}

HubError not_cached(const Repository& repository, const std::string& why) {
  const auto folder = cached_folder(repository);
  const auto what = folder.empty()
                        ? fmt::format("{} is neither a local path nor in the cache {}",
                                      repository.name, repository_folder(repository))
                        : fmt::format("the download of {} is incomplete, {} is missing from {}",
                                      repository.name, missing_file(repository, folder), folder);
  return {fmt::format("{}; {}", what, why), false};
}

HubError error_of(const Repository& repository, const DownloadEnd& end,
                  const ProvideOptions& options) {
  switch (end.why) {
    case DownloadEnd::Why::deadline:
      return cannot(repository,
                    fmt::format("it took longer than {} s",
                                std::chrono::ceil<std::chrono::seconds>(*options.limit).count()),
                    true);
    case DownloadEnd::Why::idle:
      return cannot(
          repository,
          fmt::format("{} has sent nothing new for {} min; check the network, and start again to "
                      "continue",
                      endpoint(repository.site),
                      std::chrono::ceil<std::chrono::minutes>(options.idle_limit).count()),
          true);
    case DownloadEnd::Why::no_space:
      return cannot(
          repository,
          fmt::format("No space left on device: it needs {}, but the disk of {} has {}; make "
                      "space, or set {} to a folder on another disk",
                      shown_bytes(end.needed), repository_folder(repository),
                      shown_bytes(end.available), cache_variable(repository.site)));
    case DownloadEnd::Why::exited:
      break;
  }
  if (WIFSIGNALED(end.status) && end.output.empty())
    return cannot(repository, fmt::format("{} was killed by signal {}",
                                          program_name(repository.site), WTERMSIG(end.status)));
  return failure_of(repository, end.output);
}

HubError lacks(const Repository& repository) {
  const auto folder = cached_folder(repository);
  const auto missing = folder.empty() ? "its files" : missing_file(repository, folder);
  if (repository.is_dataset())
    return cannot(repository,
                  "it has no file in JSON, CSV, TSV, text, Parquet or Arrow, the formats that are "
                  "read");
  if (missing == "tokenizer.json")
    return cannot(repository,
                  "it has no tokenizer.json; set tokenizer_path to a folder with one, which "
                  "transformers' AutoTokenizer.save_pretrained writes");
  return cannot(repository,
                fmt::format("it has no {}; only models in Hugging Face layout with safetensors "
                            "files are read",
                            missing));
}

// What a line of progress names.
std::string described(const Repository& repository) {
  if (repository.part == Part::settings)
    return fmt::format("the configuration and the tokenizer of {}", repository.name);
  return fmt::format("{} {}", noun(repository), repository.name);
}

// Runs the program until it succeeds, or fails in a way that will not pass.
void download(const Repository& repository, const Program& program, const ProvideOptions& options,
              std::optional<Clock::time_point> deadline) {
  options.say(fmt::format("downloading {} from {} to {}", described(repository),
                          endpoint(repository.site), repository_folder(repository)));
  DownloadLimits limits;
  limits.deadline = deadline;
  limits.idle = options.idle_limit;
  std::size_t failures = 0;
  while (true) {
    const auto end = run_download(repository, program, limits, options.say);
    if (end.why == DownloadEnd::Why::exited && end.status == 0) return;
    const auto error = error_of(repository, end, options);
    if (end.new_bytes > 0) failures = 0;  // the next attempt needs less
    if (!error.passing() || options.limit || failures == options.waits.size()) throw error;
    const auto wait = options.waits[failures++];
    options.say(fmt::format("{}; trying again in {} s", error.what(),
                            std::chrono::ceil<std::chrono::seconds>(wait).count()));
    std::this_thread::sleep_for(wait);
  }
}

}  // namespace

std::string complete_folder(const Repository& repository) {
  const auto folder = cached_folder(repository);
  return folder.empty() || !missing_file(repository, folder).empty() ? "" : folder;
}

bool is_provided(const Repository& repository) {
  return !complete_folder(repository).empty() && !is_incomplete(lock_path(repository));
}

std::string provide(const Repository& repository, const ProvideOptions& options) {
  if (is_provided(repository)) return cached_folder(repository);
  // Somebody else may be downloading the rest, which takes longer than there is time for.
  if (auto folder = complete_folder(repository); options.limit && !folder.empty()) return folder;
  const auto program = options.offline ? std::nullopt : find_program(repository);
  if (!program) {
    // An interrupted download may lack only files that are not needed.
    if (auto folder = complete_folder(repository); !folder.empty()) return folder;
    if (options.offline)
      throw not_cached(repository,
                       fmt::format("offline is set, so nothing is downloaded; where there is a "
                                   "network, run: {}",
                                   download_command(repository)));
    throw not_cached(repository,
                     fmt::format("to download it, install {}: {}", program_name(repository.site),
                                 install_command(repository.site)));
  }
  std::optional<Clock::time_point> deadline;
  if (options.limit) deadline = Clock::now() + *options.limit;
  std::optional<DownloadLock> lock;
  try {
    lock.emplace(lock_path(repository), deadline, [&](const std::string& owner) {
      options.say(fmt::format("waiting for {}, which downloads {} {}", owner, noun(repository),
                              repository.name));
    });
  } catch (const std::runtime_error& e) {
    // The other process may have what we need already, and be downloading the weights.
    if (auto folder = complete_folder(repository); !folder.empty()) return folder;
    throw cannot(repository, e.what(), true);
  }
  if (is_provided(repository)) return cached_folder(repository);
  lock->begin();
  download(repository, *program, options, deadline);
  const auto folder = complete_folder(repository);
  if (!folder.empty() || !cached_folder(repository).empty()) lock->complete();
  if (folder.empty()) throw lacks(repository);
  if (repository.part != Part::settings)
    options.say(fmt::format("{} is complete", described(repository)));
  return folder;
}

}  // namespace mgpu::hub
