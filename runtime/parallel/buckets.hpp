#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/layout.hpp"

// How the trained weights of a model lie in one flat vector, which parts of it are reduced
// together, and which part belongs to which rank. Pure arithmetic.
namespace mgpu::parallel {

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct Bucket {
  int first_unit = 0, last_unit = 0;  // both included
  Range flat;
};

struct Buckets {
  std::vector<Range> units;     // of each unit, padding included
  std::vector<Bucket> buckets;  // ascending, without gaps
  std::vector<int> bucket_of;   // of each unit
  std::int64_t size = 0;
};

// Units are padded to a multiple of world * 64 elements, so that every bucket falls into equal
// parts. A bucket takes units until it has `wanted` elements; the embedding is alone in one,
// because with a tied head its gradient is begun first and ended last. `wanted` 0: each unit alone.
Buckets make_buckets(const model::ModelLayout& layout, int world, std::int64_t wanted);

// The part of a range that a rank owns.
Range part(const Range& range, int rank, int world);

// A piece of one tensor that lies within an owned part.
struct Fragment {
  std::string name;
  std::int64_t tensor_begin = 0;  // in elements of the tensor
  std::int64_t size = 0;
  std::int64_t whole = 0;  // elements of the tensor
  std::int64_t flat = 0;   // where it lies in the flat vector
  std::int64_t owned = 0;  // where it lies among what the rank owns
  bool decay = false;
};

// What `rank` owns, in order: its part of every bucket, or everything if `sharded` is false.
std::vector<Fragment> owned_fragments(const model::ModelLayout& layout, const Buckets& buckets,
                                      int rank, int world, bool sharded);
std::int64_t owned_size(const Buckets& buckets, int world, bool sharded);

}  // namespace mgpu::parallel
