#pragma once

#include <string>
#include <vector>

namespace mgpu::rendezvous {

// Rows of words as columns two blanks apart, each as wide as its widest word; no blanks at the
// end of a line. Rows may differ in length.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace mgpu::rendezvous
