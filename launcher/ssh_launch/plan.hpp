#pragma once

#include <string>
#include <vector>

#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/options/hostfile.hpp"
#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// One agent that a --hostfile has started.
struct AgentStart {
  Host host;
  bool local = false;                  // on this machine, without ssh
  std::vector<std::string> arguments;  // its command line after the program's name
};

// What is known of this machine before the agents are planned.
struct SshLaunchFacts {
  std::string host_name;
  std::string user;
  int port = 0;  // for the nodes to meet at where no --master-port is given
};

// The agents of the job by node rank: of the file's hosts all, or the first ones that --nnodes asks
// for. Each gets the options of the command line, its own place, and its secret on stdin. Throws
// UsageError for options that make no sense with a hostfile.
std::vector<AgentStart> plan_ssh_launch(const Options& options, const std::vector<Host>& hosts,
                                        const SshLaunchFacts& facts);

// The agents, for people: the dry run of a --hostfile.
std::string ssh_launch_text(const std::vector<AgentStart>& agents);

// Decides what the end of one agent means for the others. Agents of one job end with one status;
// a host that ssh cannot reach or has lost is missing to all of them. Does no I/O, reads no clock.
class SshLaunchPolicy {
 public:
  enum class Step {
    wait,          // they do not need it
    stop_in_time,  // they end by themselves, since their job does; stop those that do not
    stop_at_once,  // they would wait for it
  };
  SshLaunchPolicy(int agents, int least) : left_(agents), reachable_(agents), least_(least) {}

  Step agent_exited(const ExitReport& report, bool over_ssh);
  void stop_requested(int signo);

  // ssh's own failure: it could not connect, or the connection broke, or it was killed.
  static bool lost(const ExitReport& report, bool over_ssh);

  bool done() const { return left_ == 0; }
  int status() const { return status_; }  // that mgpu-run ends with

 private:
  void decide(int status);

  int left_;
  int reachable_;
  int least_;
  bool decided_ = false;
  int status_ = 0;
};

}  // namespace mgpu::launcher
