#pragma once

#include <string>
#include <vector>

namespace mgpu::rendezvous {

// Formats rows as columns that are two spaces apart, each as wide as its widest cell, without
// trailing spaces. Rows may differ in length.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

// The text of a cell; a dash when it is empty.
std::string table_cell(std::string text);

}  // namespace mgpu::rendezvous
