#pragma once

#include "launcher/lifecycle/report.hpp"

namespace mgpu::launcher {

// Whether the failure may be a consequence of a rank that does not go on: a hang, or a time-out in
// which the rank waited for others.
bool may_have_waited(const AttemptResult& attempt);

// A rank that only waited for a suspended one is not the cause: then that one becomes the first
// failure, and the cause is a hang. It may be on another node than the rank that gave up. Does
// nothing for a failure of another kind.
void blame_suspended(AttemptResult& attempt);

// The rank whose exit ended the attempt, which gives the exit status and the time: the first
// failure, unless that is a suspended rank for which this one waited.
const RankResult& first_to_exit(const AttemptResult& attempt);

}  // namespace mgpu::launcher
