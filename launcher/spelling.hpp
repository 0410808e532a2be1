#pragma once

#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::nearest;
using rendezvous::shown;

}  // namespace mgpu::launcher
