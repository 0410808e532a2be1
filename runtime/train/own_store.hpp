#pragma once

#include <memory>

#include "rendezvous/contract.hpp"
#include "rendezvous/store/background_server.hpp"

namespace mgpu::train {

// Where the launcher serves no store (`mgpu-run --rank0-store`, or ranks started by hand), rank 0
// serves one as long as the result lives, and the contract says from then on that there is one.
// Null on the other ranks, and if nothing is missing. Throws an error with address and port if it
// cannot listen there.
std::unique_ptr<rendezvous::store::BackgroundServer> serve_missing_store(
    rendezvous::Contract& contract);

}  // namespace mgpu::train
