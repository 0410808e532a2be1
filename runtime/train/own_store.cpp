#include "runtime/train/own_store.hpp"

namespace mgpu::train {

using rendezvous::store::BackgroundServer;
using Reach = rendezvous::store::ServerOptions::Reach;

std::unique_ptr<BackgroundServer> serve_missing_store(rendezvous::Contract& contract) {
  if (contract.world_size == 1 || contract.agent_store) return nullptr;
  contract.agent_store = true;
  if (contract.rank != 0) return nullptr;
  const bool local =
      contract.master_addr.starts_with("127.") || contract.master_addr == "localhost";
  return std::make_unique<BackgroundServer>(rendezvous::store::ServerOptions{
      .reach = local ? Reach::loopback : Reach::network, .port = contract.master_port});
}

}  // namespace mgpu::train
