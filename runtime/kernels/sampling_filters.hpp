#pragma once

#include <cstdint>

namespace mgpu::ops {

// Which tokens may be drawn. The filters apply in the order top_k, top_p, min_p, each to the tokens
// that the previous one kept. Tokens that tie with the last kept token are kept too.
struct Sampling {
  double temperature = 1;  // 0: the most likely token; the first one in a tie
  std::int64_t top_k = 0;  // 0: no limit
  double top_p = 1;
  double min_p = 0;  // as a share of the largest probability
};

}  // namespace mgpu::ops
