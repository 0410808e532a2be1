#include "rendezvous/etcd/members.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::rendezvous::etcd {

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
