#include "runtime/servers/id_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

#include "runtime/servers/addresses.hpp"
#include "runtime/servers/listeners.hpp"

namespace mgpu::servers {
namespace {

using namespace std::chrono_literals;
using rendezvous::store::ServerOptions;
using rendezvous::store::StoreServer;
using std::chrono::steady_clock;

constexpr auto kServePause = 1ms;
constexpr auto kValidateLimit = 5s;  // a worker sends VALIDATE at once
// A worker needs one connection. The others are for workers that connect again.
constexpr std::size_t kSpareConnections = 16;
// The requests of a worker have less than 100 bytes.
constexpr std::size_t kMaxRequestBytes = 4096;
constexpr std::size_t kMaxRejectedShown = 8;
// c10d's clients put this in front of the keys of a program, but not of their own counter.
constexpr const char* kKeyPrefix = "/";
constexpr const char* kClientCounter = "init/";

std::unique_ptr<StoreServer> open_store(ServerOptions options) {
  try {
    return std::make_unique<StoreServer>(std::move(options));
  } catch (const std::runtime_error& e) {
    const std::string text = e.what();  // without its advice, which is for mgpu-run
    throw std::runtime_error("vllm_group_port: " + text.substr(0, text.find(';')));
  }
}

}  // namespace

std::string pickled_id(const NcclId& id) {
  // Pickle protocol 3: _ctypes._unpickle(ncclUniqueId, ({}, bytes)), the form of ctypes structures.
  std::string pickle = "\x80\x03";
  pickle += "c_ctypes\n_unpickle\n";
  pickle += "cvllm.distributed.device_communicators.pynccl_wrapper\nncclUniqueId\n";
  pickle += "}C";
  pickle += static_cast<char>(id.size());
  pickle.append(id.begin(), id.end());
  pickle += "\x86\x86R.";
  return pickle;
}

WorkerPeers worker_peers(const http::Address& server, const std::string& own_address,
                         const std::string& proc) {
  WorkerPeers peers{.addresses = addresses_of(server.host), .users = {::geteuid(), 0}};
  if (peers.addresses.empty())
    throw std::runtime_error(fmt::format("cannot resolve the server's host {}", server.host));
  if (!is_this_host(server.host)) return peers;
  peers.addresses.insert({"127.0.0.1", "::1", own_address.substr(0, own_address.find('%'))});
  const auto port = static_cast<std::uint16_t>(std::stoi(server.port));
  for (const auto user : listening_users(proc, port)) peers.users.push_back(user);
  return peers;
}

IdStore::IdStore(Settings settings, const NcclId& id) : settings_(std::move(settings)) {
  ServerOptions options{.reach = ServerOptions::Reach::address,
                        .address = settings_.address,
                        .port = settings_.port,
                        .validate_timeout = kValidateLimit};
  options.admit = [this](int connection, const sockaddr& peer) { return admits(connection, peer); };
  options.policy = {
      .read_only = true, .counters = {kClientCounter}, .max_request_bytes = kMaxRequestBytes};
  store_ = open_store(std::move(options));
  port_ = store_->port();
  store_->set(std::string(kKeyPrefix) + kIdKey, pickled_id(id));
}

bool IdStore::admits(int connection, const sockaddr& peer) {
  const auto address = numeric_address(peer);
  const bool known = settings_.peers.addresses.contains(address);
  if (!known ||
      (local_peers_.is_local(peer) && !local_peers_.runs_as(connection, settings_.peers.users))) {
    if (rejected_.size() < kMaxRejectedShown)
      rejected_.insert(known ? address + " (another user)" : address);
    return false;
  }
  const auto limit = static_cast<std::size_t>(settings_.workers) + kSpareConnections;
  return store_->statistics().connections < limit;
}

void IdStore::serve_until(const std::function<bool()>& connected, std::chrono::milliseconds limit) {
  try {
    serve_clients(connected, limit);
  } catch (const std::runtime_error& e) {
    store_.reset();
    if (rejected_.empty()) throw;
    throw std::runtime_error(e.what() + rejection_note());
  } catch (...) {
    store_.reset();
    throw;
  }
  store_.reset();
}

void IdStore::serve_clients(const std::function<bool()>& connected,
                            std::chrono::milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (!connected()) {
    if (steady_clock::now() > end)
      throw std::runtime_error(
          fmt::format("the server's workers did not connect to {}:{} within {:g} min; check that "
                      "they can reach that port (vllm_group_port)",
                      settings_.address, port_, static_cast<double>(limit.count()) / 60'000));
    pollfd ready{store_->fd(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(kServePause.count()));
    store_->serve_ready();
  }
}

std::string IdStore::rejection_note() const {
  return fmt::format(
      "; connections from {} were rejected, because only the server's processes at {} may connect",
      fmt::join(rejected_, ", "), fmt::join(settings_.peers.addresses, ", "));
}

}  // namespace mgpu::servers
