#pragma once

#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// Text from outside in a form that is safe on a terminal, on one line. What could control the
// terminal becomes '?': control characters (C0, DEL, C1), characters that change the direction of
// writing, and bytes that are not UTF-8.
std::string printable(std::string_view text);

// The same for the output of a program: line feeds are kept, tabs become spaces, and colours and
// other sequences that begin with ESC [ are removed.
std::string printable_output(std::string_view text);

}  // namespace mgpu::rendezvous
