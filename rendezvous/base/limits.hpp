#pragma once

namespace mgpu::rendezvous {

inline constexpr int kMostRanks = 4096;   // of one node
inline constexpr int kMostNodes = 65536;  // of one job
inline constexpr int kLastPort = 65535;

}  // namespace mgpu::rendezvous
