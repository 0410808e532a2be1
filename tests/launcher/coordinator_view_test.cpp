// What the status of a job shows of its nodes.
#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Job = mgpu::tests::CoordinatedJob;

TEST_CASE("the status shows every node and its state", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.host = "a", .nproc = 2, .leads = true});
  CHECK(job.coordinator.view()[0].state == "waiting");
  CHECK(job.coordinator.view()[0].node_rank == -1);
  job.join(2, {.host = "b"});
  job.join(3, {.host = "c"});
  const auto states = [&] {
    std::string text;
    for (const auto& node : job.coordinator.view())
      text += node.host + ' ' + std::to_string(node.node_rank) + ' ' + node.state + "; ";
    return text;
  };
  CHECK(states() == "a 0 running; b 1 running; c -1 spare; ");
  job.now += 10s;
  job.failing(2);
  job.fail(2, job.now);
  CHECK(states() == "a 0 stopping; b 1 ended; c -1 waiting; ");
  CHECK(job.coordinator.view()[1].since == job.now);
  job.lose(1, job.now);
  CHECK(states() == "a 0 lost; b 1 ended; c -1 waiting; ");
  CHECK(job.coordinator.host_of(1) == "a");
  CHECK(job.coordinator.host_of(77) == "a node");
}
