#include "runtime/train/background_save.hpp"

#include <algorithm>
#include <filesystem>
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
    job.draft.reset();
    announce_failure(exchange);
    throw;
  }
  exchange.announce(published);
  return published;
}

// If rank 0 has given up the checkpoint and removed its folder, the cause is rank 0's error and not
// the missing folder.
bool BackgroundSave::write_own_part(const SaveJob& job, const std::stop_token& stop) {
  SaveExchange exchange(contract_, current_, previous_);
  snapshot_.wait();
  try {
    const auto own =
        checkpoint::write_images(job.folder, snapshot_.images(), background_writers(), stop);
    if (!own) return false;
    exchange.report(*own);
  } catch (const std::exception&) {
    if (fs::exists(job.folder)) throw;
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
