#include "runtime/train/save_exchange.hpp"

#include <fmt/format.h>

#include <chrono>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace mgpu::train {
namespace {

constexpr auto kLook = std::chrono::milliseconds(200);  // for a stop request
constexpr const char* kPublished = "published";
constexpr std::string_view kFailed = "failed ";

}  // namespace

SaveExchange::SaveExchange(const rendezvous::Contract& contract, const std::string& save,
                           const std::string& previous)
    : rank_(contract.rank),
      world_(contract.world_size),
      attempt_(fmt::format("mgpu-train/{}/{}", contract.run_id, contract.restart_count)),
      save_(save),
      previous_(previous) {
  if (world_ > 1)
    store_ = std::make_unique<rendezvous::store::StoreClient>(contract.master_addr,
                                                              contract.master_port);
}

std::string SaveExchange::key_of(const std::string& save) const {
  return fmt::format("{}/save/{}", attempt_, save);
}

std::string SaveExchange::key_of(int rank) const {
  return fmt::format("{}/{}", key_of(save_), rank);
}

bool SaveExchange::wait_for(const std::string& key, const std::stop_token& stop) {
  while (!stop.stop_requested()) try {
      store_->wait(std::vector{key}, kLook);
      return true;
    } catch (const rendezvous::store::StoreTimeout&) {
      continue;
    }
  return false;
}

void SaveExchange::report(const std::vector<checkpoint::FileRecord>& own) {
  auto text = fmt::format("{}\n", own.size());
  for (const auto& file : own) text += fmt::format("{} {} {}\n", file.name, file.size, file.digest);
  store_->set(key_of(rank_), text);
}

void SaveExchange::report_failure(const std::string& error) {
  store_->set(key_of(rank_), fmt::format("{}{}", kFailed, error));
}

std::optional<std::vector<checkpoint::FileRecord>> SaveExchange::collect(
    const std::stop_token& stop) {
  std::vector<checkpoint::FileRecord> records;
  for (int rank = 1; rank < world_; ++rank) {
    if (!wait_for(key_of(rank), stop)) return std::nullopt;
    const auto report = store_->get(key_of(rank));
    store_->remove(key_of(rank));
    if (report == kFailed) return std::nullopt;
    if (report.starts_with(kFailed))
      throw std::runtime_error(fmt::format("rank {} {}", rank, report.substr(kFailed.size())));
    std::istringstream text(report);
    std::size_t count = 0;
    for (text >> count; count > 0; --count) {
      auto& file = records.emplace_back();
      text >> file.name >> file.size >> file.digest;
    }
  }
  // All ranks have begun this checkpoint, so they have read what was announced of the one before.
  if (store_ && !previous_.empty()) store_->remove(key_of(previous_));
  return records;
}

void SaveExchange::announce(bool published) {
  if (store_) store_->set(key_of(save_), published ? kPublished : "given up");
}

bool SaveExchange::published(const std::stop_token& stop) {
  return wait_for(key_of(save_), stop) && store_->get(key_of(save_)) == kPublished;
}

bool SaveExchange::is_given_up() noexcept try {
  const auto announced = store_->get_now(key_of(save_));
  return !announced.empty() && announced != kPublished;
} catch (const std::exception&) {
  return false;
}

}  // namespace mgpu::train
