#include "rendezvous/etcd/job_view.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::rendezvous::etcd {

std::string key_part(std::string_view name) {
  std::string part;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    part += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return part;
}

JobKeys JobKeys::of(std::string_view prefix, std::string_view job) {
  const auto folder = fmt::format("{}/{}/", prefix, key_part(job));
  return {.folder = folder, .leader = folder + "leader", .state = folder + "state"};
}

void JobView::put(Slot& slot, std::optional<KeyValue> key, std::int64_t revision) {
  if (revision < slot.revision) return;
  slot.known = std::move(key);
  slot.revision = revision;
}

void JobView::replace(const std::vector<KeyValue>& keys, std::int64_t revision) {
  const auto found = [&](const std::string& name) -> std::optional<KeyValue> {
    const auto key = std::ranges::find(keys, name, &KeyValue::key);
    return key == keys.end() ? std::nullopt : std::optional(*key);
  };
  put(leader_, found(keys_.leader), revision);
  put(state_, found(keys_.state), revision);
}

void JobView::apply(const WatchEvent& event) {
  const auto& name = event.key.key;
  if (name != keys_.leader && name != keys_.state) return;
  put(name == keys_.leader ? leader_ : state_,
      event.removed ? std::nullopt : std::optional(event.key), event.key.mod_revision);
}

std::int64_t JobView::newest_revision() const {
  return std::max(leader_.known ? leader_.known->mod_revision : 0, state_revision());
}

void LeaseTimes::confirmed(BootClock::time_point sent, std::chrono::seconds ttl) {
  const BootClock::duration length = ttl;
  ttl_ = ttl;
  until_ = std::max(until_, sent + length - length / 20);
  renew_at_ = sent + length / 3;
}

Transaction leader_transaction(const JobKeys& keys, const std::string& value, std::int64_t lease) {
  using enum Operation::What;
  return {.if_all = {{.key = keys.leader, .what = Compare::What::create_revision, .is = 0}},
          .then = {{.what = put, .key = keys.leader, .value = value, .lease = lease},
                   {.what = range, .key = keys.leader},
                   {.what = range, .key = keys.state}},
          .otherwise = {{.what = range, .key = keys.leader}, {.what = range, .key = keys.state}}};
}

Transaction save_transaction(const JobKeys& keys, std::int64_t term, std::int64_t state_revision,
                             const std::string& state, std::int64_t lease) {
  using enum Operation::What;
  return {
      .if_all = {{.key = keys.leader, .what = Compare::What::create_revision, .is = term},
                 {.key = keys.state, .what = Compare::What::mod_revision, .is = state_revision}},
      .then = {{.what = put, .key = keys.state, .value = state, .lease = lease}},
      .otherwise = {{.what = range, .key = keys.leader}, {.what = range, .key = keys.state}}};
}

}  // namespace mgpu::rendezvous::etcd
