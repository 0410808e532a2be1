#include "rendezvous/etcd/members.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous::etcd {

std::string plain_password_warning(const Access& access) {
  if (access.user.empty()) return {};
  std::string urls;
  for (const auto& endpoint : access.endpoints)
    if (!endpoint.tls) urls += (urls.empty() ? "" : ", ") + endpoint.url();
  if (urls.empty()) return {};
  return fmt::format(
      "warning: the password of the etcd user {} is sent unencrypted to {}, so others on the "
      "network can read it; use https:// endpoints",
      shown(access.user), urls);
}

Members::Members(boost::asio::io_context& loop, Access access)
    : io(loop), resolver(loop), access_(std::move(access)) {
  if (access_.endpoints.empty()) throw std::runtime_error("no etcd endpoint is given");
  if (std::ranges::any_of(access_.endpoints, &Endpoint::tls)) tls_.emplace(access_.tls);
}

void Members::mark_failed(std::size_t member) {
  if (member == current_) current_ = (current_ + 1) % count();
}

bool Members::is_same_cluster(std::uint64_t cluster) {
  if (cluster_ == 0) cluster_ = cluster;
  return cluster == 0 || cluster == cluster_;
}

std::string Failures::text(const Members& members) const {
  std::string text;
  for (const auto& [member, why] : why_)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", members.at(member).url(), why);
  return text;
}

}  // namespace mgpu::rendezvous::etcd
