#pragma once

#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// "SIGTERM"; "signal 40" for a signal without a name.
std::string signal_name(int signo);

// The number of the signal with this name, with or without SIG, in any case; 0: there is none.
int signal_number(std::string_view name);

}  // namespace mgpu::rendezvous
