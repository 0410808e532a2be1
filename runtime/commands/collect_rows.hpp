#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::recipes {

// Collects texts that the ranks made for `rows` rows: rank r made those of rows r, r + world, ...,
// which are its `mine`. Returns the texts of all rows, in order, on every rank. Communicates
// through host memory. All ranks call it together.
std::vector<std::string> collect_rows(comm::Comm& comm, std::vector<std::string> mine,
                                      std::size_t rows);

}  // namespace mgpu::recipes
