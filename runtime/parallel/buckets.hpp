#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/layout.hpp"

// The layout of a model's trained weights in one flat vector: which parts are reduced together
// (buckets), and which part each rank owns. Pure arithmetic.
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
  std::vector<Range> units;     // each unit's range, padding included
  std::vector<Bucket> buckets;  // ascending, without gaps
  std::vector<int> bucket_of;   // the bucket of each unit
  std::int64_t size = 0;
};

// Units are padded to a multiple of world * 64 elements, so that every bucket divides into equal
// parts. A bucket takes units as long as it stays within `wanted` elements; with 0, every unit has
// a bucket of its own. The embedding always has its own bucket, because with a tied head its
// gradient is the first to start and the last to be complete.
Buckets make_buckets(const model::ModelLayout& layout, int world, std::int64_t wanted);

// The part of a range that `rank` owns.
Range part(const Range& range, int rank, int world);

// The piece of one tensor that lies within a rank's part of a bucket.
struct Fragment {
  std::string name;
  std::int64_t tensor_begin = 0;  // its first element within the tensor
  std::int64_t size = 0;
  std::int64_t whole = 0;  // elements of the whole tensor
  std::int64_t flat = 0;   // offset in the flat vector
  std::int64_t owned = 0;  // offset in the vector of what the rank owns
  bool decay = false;      // weight decay applies
  double rate = 1;         // factor of the learning rate
  int bucket = 0;
};

// The fragments that `rank` owns, in order: its part of every bucket, or everything if `sharded` is
// false.
std::vector<Fragment> owned_fragments(const model::ModelLayout& layout, const Buckets& buckets,
                                      int rank, int world, bool sharded);
// The number of elements that a rank owns, padding included.
std::int64_t owned_size(const Buckets& buckets, int world, bool sharded);

}  // namespace mgpu::parallel
