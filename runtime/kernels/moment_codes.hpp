#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define MGPU_HOST_DEVICE __host__ __device__
#else
#define MGPU_HOST_DEVICE
#endif

// Finds the code of a number in a table of 8-bit levels without a search. The upper 16 bits of a
// positive fp32 number select an entry: how many of the table's positive borders are below all
// numbers with these upper bits, and the lower bits of the one border that may be among them.
namespace mgpu::kernels {

// The smallest number with an entry is 2^-22, which is below all borders except 0; the largest
// is 1.
inline constexpr std::uint32_t kLeastCoded = 0x34800000, kLargestCoded = 0x3f800000;
inline constexpr int kCodeEntries = ((kLargestCoded - kLeastCoded) >> 16) + 1;
inline constexpr unsigned kZeroCode = 127;  // of level 0 in a table with negative levels

// With `count` borders below, and 0xffff for the lower bits of the next border if it is not here.
inline constexpr std::uint32_t code_entry(std::uint32_t count, std::uint32_t lower_bits) {
  return count << 16 | (0xffff - lower_bits);
}

// The number of borders below x; `bits` are those of x, which is in [-1, 1]. `kNegative`: the table
// has negative levels, whose borders mirror the positive ones. Otherwise x is not negative.
template <bool kNegative>
MGPU_HOST_DEVICE inline unsigned code_of(const std::uint32_t* entries, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 31;
  // A border at x is not below x. Mirrored, it is not above -x: the same as below the next number.
  std::uint32_t at = magnitude + (kNegative ? sign : 0);
  at = at < kLeastCoded ? kLeastCoded : at;
  // The sum carries if the lower bits are above those of the border.
  const unsigned count = (entries[(at - kLeastCoded) >> 16] + (at & 0xffff)) >> 16;
  if constexpr (kNegative) {
    return sign != 0 ? kZeroCode - (count < kZeroCode ? count : kZeroCode) : kZeroCode + count;
  } else {
    return count < magnitude ? count : magnitude;  // 0 is the first border, and not below 0
  }
}

}  // namespace mgpu::kernels
