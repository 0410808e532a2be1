#pragma once

#include "rendezvous/base/text_table.hpp"

namespace mgpu::launcher {

using rendezvous::text_table;

}  // namespace mgpu::launcher
