#pragma once

#include "rendezvous/contract.hpp"

namespace mgpu::train {

// From now on this process ends at once when its launcher says that another rank has failed: a
// signal only requests a checkpoint, which would need all ranks. Does nothing without a launcher.
void obey_abort_orders(const rendezvous::Contract& contract);

}  // namespace mgpu::train
