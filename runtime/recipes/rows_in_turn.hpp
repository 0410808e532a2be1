#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::recipes {

// Of `rows` rows rank r has made r, r + world, ...: `mine`, a text each. Gives the texts of all of
// them in the order of the rows, to every rank. The ranks talk through the host's memory.
std::vector<std::string> collect_rows(comm::Comm& comm, std::vector<std::string> mine,
                                      std::size_t rows);

}  // namespace mgpu::recipes
