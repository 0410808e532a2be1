#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::comm {

// Texts are sent with their size and a checksum. A text that is not complete, because a collective
// on a GPU was interrupted when a rank was lost, is never returned: the functions then throw
// PeerLost, or std::runtime_error if all ranks are there.

// Returns the text of the rank `from` on every rank; the other ranks' `text` is ignored. `device`
// is the device of the tensors in collectives.
std::string share_text(Comm& comm, const std::string& text, c10::Device device, const char* what,
                       int from = 0);

// Returns the texts of all ranks on every rank.
std::vector<std::string> gather_texts(Comm& comm, const std::string& text, c10::Device device,
                                      const char* what);

}  // namespace mgpu::comm
