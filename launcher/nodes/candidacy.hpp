#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/nodes/job_state.hpp"
#include "rendezvous/etcd/election_status.hpp"

namespace mgpu::launcher {

// Events: what happens to a node whose job elects its leader over etcd.
struct ElectionChanged {
  rendezvous::etcd::ElectionStatus status;
  bool standing = false;   // this node is a candidate or the leader by now
  bool connected = false;  // its agent has joined a leader
  JobCounts counts = {};   // that its agent has received
};
// Answers of the actions FindAddress, StartLeader, StepAside, FollowLeader, SaveBeforeLeaving and
// SaveEnd, and Resign.
struct AddressFound {
  std::string address;  // empty: it cannot be determined
};
struct LeaderStarted {};
struct LeaderNotStarted {
  std::string problem;
};
struct PauseOver {};
struct LeaderFollowed {
  bool connected;  // the agent is still connected to a leader
};
struct StateSaved {};  // or it cannot be saved
struct Resigned {};
// The leader of this node has begun or ended a round.
struct StateChanged {
  JobCounts counts;
  int nodes;
  LeaderTime lease_and_grace{0};
};
// The node leaves the job, whose leader runs here. No rank of the node runs.
struct LeaveRequested {
  int status;
  bool alone;  // no other agent has joined
};
// The job has ended for this node, also for a reason that is not the election's.
struct JobIsOver {};
// This process ends. Answered with CloseElection.
struct ProcessEnds {
  bool leading;  // this node leads right now
  int status;    // of the job
};
using CandidacyEvent = std::variant<ElectionChanged, AddressFound, LeaderStarted, LeaderNotStarted,
                                    PauseOver, LeaderFollowed, StateSaved, Resigned, StateChanged,
                                    LeaveRequested, JobIsOver, ProcessEnds>;

// Actions: what the owner has to do, in this order. PrintLine and these:
struct FindAddress {  // at which other nodes reach this one; answer with AddressFound
  friend bool operator==(const FindAddress&, const FindAddress&) = default;
};
struct Stand {  // become a candidate with this address
  std::string address;
  friend bool operator==(const Stand&, const Stand&) = default;
};
struct StepAside {  // resign, and answer with PauseOver after a while
  friend bool operator==(const StepAside&, const StepAside&) = default;
};
// Start a leader in this process that continues from these counts; answer with LeaderStarted or
// LeaderNotStarted.
struct StartLeader {
  JobCounts counts;
  int nodes_before = 0;  // see Coordinator::Settings
  int left_before = 0;
  LeaderTime lease_and_grace_before{0};
  friend bool operator==(const StartLeader&, const StartLeader&) = default;
};
struct StopLeader {
  friend bool operator==(const StopLeader&, const StopLeader&) = default;
};
// Connect the agent to the leader at this "host:port"; empty: there is none, for the reason
// `problem`. Answer with LeaderFollowed.
struct FollowLeader {
  std::string address;
  std::string problem;
  friend bool operator==(const FollowLeader&, const FollowLeader&) = default;
};
struct SaveState {  // if that fails, the election reports that this node no longer leads
  JobState state;
  friend bool operator==(const SaveState&, const SaveState&) = default;
};
struct SaveBeforeLeaving {  // answer with StateSaved
  JobState state;
  friend bool operator==(const SaveBeforeLeaving&, const SaveBeforeLeaving&) = default;
};
struct SaveEnd {  // as the last state of the job; answer with StateSaved
  JobState state;
  friend bool operator==(const SaveEnd&, const SaveEnd&) = default;
};
struct Resign {  // so that another node can lead at once; answer with Resigned
  friend bool operator==(const Resign&, const Resign&) = default;
};
struct EndJob {
  int status;
  std::string message;  // for the user
  friend bool operator==(const EndJob&, const EndJob&) = default;
};
struct CloseElection {  // nothing more follows
  friend bool operator==(const CloseElection&, const CloseElection&) = default;
};
using CandidacyAction =
    std::variant<PrintLine, FindAddress, Stand, StepAside, StartLeader, StopLeader, FollowLeader,
                 SaveState, SaveBeforeLeaving, SaveEnd, Resign, EndJob, CloseElection>;

// Decides what a node does in the election of its job's leader: when it stands, leads, follows
// another leader, and leaves. It does no I/O and reads no clock; the owner feeds it events and
// carries out the returned actions in order. The table of states is in docs/architecture.md.
//
//   following --(elected, and a leader starts here)--> leading --(no longer elected)--> following
//   following --(elected, but no leader can start)--> paused --(the pause is over)--> following
//   leading   --(the node leaves)--> leaving --> over
//   following, paused, leading --(the job ends)--> over
class Candidacy {
 public:
  struct Settings {
    std::string job;      // its id, for messages
    std::string address;  // of this node; empty: to be found
    int max_nodes = 1;
  };
  using Actions = std::vector<CandidacyAction>;

  explicit Candidacy(Settings settings) : settings_(std::move(settings)) {}

  Actions handle(const CandidacyEvent& event);

 private:
  enum class State { following, paused, leading, leaving, over };

  void on(const ElectionChanged& event);
  void on(const AddressFound& event);
  void on(const LeaderStarted&);
  void on(const LeaderNotStarted& event);
  void on(const PauseOver&);
  void on(const LeaderFollowed& event);
  void on(const StateSaved&);
  void on(const Resigned&);
  void on(const StateChanged& event);
  void on(const LeaveRequested& event);
  void on(const JobIsOver&);
  void on(const ProcessEnds& event);

  void consider();
  void follow();
  void take_over();
  void end_job(int status, const std::string& message);
  void print_once(const std::string& line);
  bool takes_part() const { return state_ != State::leaving && state_ != State::over; }

  Settings settings_;
  State state_ = State::following;
  Actions actions_;
  ElectionChanged news_;           // the last
  std::optional<JobState> saved_;  // the state of this job in it
  std::int64_t job_ = 0;           // see JobState::job
  JobState own_;                   // the last that this node saved
  int leave_status_ = 0;
  std::string start_problem_;      // why no leader could start here, as printed
  std::set<std::string> printed_;  // about values in etcd
};

}  // namespace mgpu::launcher
