#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/shard.hpp"
#include "runtime/data/source_plan.hpp"

namespace mgpu::data {

// The pieces of a file as shards in the cache, and the first line or row of each.
struct FileShards {
  std::vector<Shard> shards;
  std::vector<std::uint64_t> firsts;
};

// Tokenizes the pieces of this part that the cache lacks, calls the barrier if there is one, and
// opens the shards of all parts: one FileShards per plan. Throws std::runtime_error.
std::vector<FileShards> make_shards(const std::vector<SourcePlan>& plans,
                                    const PrepareOptions& options);

}  // namespace mgpu::data
