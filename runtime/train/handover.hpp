#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/train/learner.hpp"
#include "runtime/train/reporter.hpp"

// What the ranks hand to a process that takes a lost rank's place, and to each other: a rank may
// have completed the step in which the lost one ended, and another one may not.
namespace mgpu::train {

// How far a rank is.
struct RankPosition {
  static constexpr std::int64_t kNew = -1;

  std::int64_t steps = kNew;    // completed; kNew: it takes the place of a lost rank
  std::int64_t follow_ups = 0;  // evaluations and checkpoints done after the last one

  friend bool operator==(const RankPosition&, const RankPosition&) = default;
};

// The rank whose state all continue with: one with the most steps, so that no step is lost; among
// these, one with the fewest follow-ups, so that what only some ranks have done is done again.
// Throws std::runtime_error if all are new.
int source_of_state(std::span<const RankPosition> positions);

// The positions of all ranks, on every rank. A collective.
std::vector<RankPosition> gather_positions(comm::Comm& comm, const RankPosition& own,
                                           at::Device device);

// Copies the trained weights and the optimizer's state of one rank to all, bit for bit. For ZeRO
// stage 0. A collective.
void share_training_state(Learner& learner, int from);

// An interval of supervised training as bytes, which keep every bit of its numbers, and back.
// Throws std::runtime_error if the bytes are of no interval.
std::string bytes_of(const Interval& interval);
Interval interval_of(const std::string& bytes);

// The last step whose loss is in a log history (a JSON array); 0: there is none.
std::int64_t last_logged_step(const std::string& log_history);

}  // namespace mgpu::train
