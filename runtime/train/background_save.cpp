#include "runtime/train/background_save.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/checkpoint/file_images.hpp"
#include "runtime/data/parallel.hpp"
#include "runtime/train/save_exchange.hpp"

namespace mgpu::train {

namespace {

namespace fs = std::filesystem;

// The error that has ended the checkpoint counts, not one of the store.
void announce_failure(SaveExchange& exchange) noexcept try {
  exchange.announce(false);
} catch (const std::exception&) {
  return;
}

void report_failure(SaveExchange& exchange, const std::string& error) noexcept try {
  exchange.report_failure(error);
} catch (const std::exception&) {
  return;
}

bool is_missing(const std::string& folder) {
  std::error_code ignored;
  return fs::status(folder, ignored).type() == fs::file_type::not_found;
}

}  // namespace

int background_writers() {
  constexpr int kMostWriters = 8;
  return std::clamp(data::usable_cores() / 2, 1, kMostWriters);
}

BackgroundSave::BackgroundSave(const rendezvous::Contract& contract, Snapshot& snapshot)
    : contract_(contract), snapshot_(snapshot) {}

void BackgroundSave::begin(SaveJob job) {
  previous_ = std::exchange(current_, fs::path(job.folder).filename().string());
  begun_ = true;
  over_ = published_ = false;
  error_ = nullptr;
  note_.reset();
  thread_ = std::jthread([this, job = std::move(job)](const std::stop_token& stop) mutable {
    try {
      published_ = write(job, stop);
    } catch (...) {
      error_ = std::current_exception();
    }
    job = {};  // removes the draft, unless it was published
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_one();
  });
}

bool BackgroundSave::write(SaveJob& job, const std::stop_token& stop) {
  if (contract_.rank != 0) return write_own_part(job, stop);
  SaveExchange exchange(contract_, current_, previous_);
  snapshot_.wait();
  bool published = false;
  try {
    auto own = checkpoint::write_images(job.folder, snapshot_.images(), background_writers(), stop);
    if (own) job.write_small_files();
    const auto others = own ? exchange.collect(stop) : std::nullopt;
    if (others) {
      auto records = std::move(job.known);
      records.insert(records.end(), own->begin(), own->end());
      records.insert(records.end(), others->begin(), others->end());
      job.publish(*job.draft, records);
      published = true;
    }
  } catch (...) {
    announce_failure(exchange);  // before the folder goes
    job.draft.reset();
    throw;
  }
  exchange.announce(published);
  if (published && job.remove_older) remove_older(job);
  return published;
}

// The new checkpoint is complete, so training need not end because an older one stays.
void BackgroundSave::remove_older(const SaveJob& job) {
  try {
    job.remove_older();
  } catch (const std::exception& e) {
    note_ = e.what();
  }
}

// If rank 0 has given up the checkpoint and removed its folder, the cause is rank 0's error and not
// the missing folder. A folder that only this rank does not see is for rank 0 to report.
bool BackgroundSave::write_own_part(const SaveJob& job, const std::stop_token& stop) {
  SaveExchange exchange(contract_, current_, previous_);
  snapshot_.wait();
  try {
    const auto own =
        checkpoint::write_images(job.folder, snapshot_.images(), background_writers(), stop);
    if (!own) return false;
    exchange.report(*own);
  } catch (const std::exception&) {
    if (exchange.is_given_up()) return false;
    const bool missing = is_missing(job.folder);
    report_failure(exchange,
                   missing ? fmt::format("does not see {}; all ranks must write to the same file "
                                         "system",
                                         job.folder)
                           : "");
    if (!missing) throw;
  }
  return exchange.published(stop);
}

bool BackgroundSave::ended(std::chrono::milliseconds limit) {
  if (!begun_) return false;
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return over_; })) return false;
  }
  if (thread_.joinable()) thread_.join();
  begun_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return true;
}

bool BackgroundSave::abandon() {
  if (!begun_) return false;
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (published_ || error_) return false;
  begun_ = false;
  return true;
}

}  // namespace mgpu::train
