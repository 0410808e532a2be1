#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::rendezvous {

// Messages between agents and the leader. Increase the version when a message changes its meaning:
// different versions reject each other.
inline constexpr std::uint8_t kProtocolVersion = 5;
// From this version on a leader can prove its refusal to an agent of another version. Therefore the
// hello keeps its fields, and so does the refusal.
inline constexpr std::uint8_t kFirstProvenVersion = 3;

// A violation of the protocol; the connection is closed.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A mismatch that a retry cannot fix: another protocol version, another secret.
struct Mismatch : ProtocolError {
  using ProtocolError::ProtocolError;
};

// --- Handshake, before both sides have proven that they have the secret.

struct Hello {
  std::string job;
  std::string nonce;    // hex
  std::string purpose;  // "agent", "status", "store"
  bool sealed = false;  // requests the secret, sealed for our user
};
struct Challenge {
  std::string nonce;   // hex
  std::string proof;   // hex: proves that the leader has the secret
  std::string sealed;  // the secret, readable by programs of our user only; may be empty
};
struct Proof {
  std::string proof;   // hex: proves that the agent has the secret too
  std::string sealed;  // both nonces, if the leader has sealed its secret
};
// Ends a connection at any time. `status` is the exit status of the program that is refused.
struct Refusal {
  int status = exit_status::kUsage;
  std::string why;
  std::string proof = {};  // hex: in the handshake, proves that the leader has the secret
};

// --- Leader to agent.

struct Welcome {
  std::uint64_t session = 0;            // part of every datagram of this connection
  std::int64_t heartbeat_interval = 0;  // nanoseconds
  std::int64_t keep_alive = 0;          // nanoseconds
};
// A note for the user: what the job waits for.
struct Notice {
  std::string text;
  bool excluded = false;  // this node has given up its place because its ranks kept failing
};
// A round starts, and this node is part of it.
struct Begin {
  int round = 0;
  int restarts = 0;  // restarts after failures so far
  int oom_count = 0;
  int node_rank = 0;
  int nodes = 1;
  int base_rank = 0;
  int world_size = 1;
  std::int64_t grace = 0;     // nanoseconds; the longest grace period of the nodes, for all of them
  std::string master_addr;    // empty: the address at which the node reached the leader
  int master_port = 0;        // 0: the port at which the node reached the leader
  bool direct_store = false;  // ranks of other nodes connect to the leader's store themselves
  // How many nodes a leader that replaces this one waits for: those of the round, and the leader's
  // node if that has to come back too.
  int to_rejoin = 1;
};
struct Stop {
  int round = 0;
  std::string why;
  int signo = 15;
  bool failed = false;  // a rank or a node: what the other ranks compute is lost
};
// The job has ended.
struct End {
  int status = 0;
  std::string message;  // for the user, may be empty
};
struct StatusReply {
  std::string text;  // JSON
};

// Whether the ranks of the round are suspended, and whether the leader is. Sent when that changes,
// and as the answer to a Suspension.
struct Pause {
  bool ranks = false;
  bool leader = false;  // it sends no heartbeats until the next Pause
  std::string host;     // the node that was suspended
};

// How long no rank of the job has been active, in nanoseconds: the answer to a Progress that states
// how long those of a node have not.
struct JobIdle {
  int round = 0;
  std::int64_t time = 0;
};

// --- Agent to leader.

struct Join {
  std::string host;
  int nproc = 1;
  int node_rank = -1;      // requested; -1: none
  int position = -1;       // in the scheduler's order; -1: unknown
  bool leads = false;      // the leader runs on this node
  int rank0_port = 0;      // a free port that rank 0 can bind; 0: none
  std::int64_t grace = 0;  // nanoseconds; of this node
  int nodes = 0;           // Begin::to_rejoin of the last round that this node took part in
  // Nanoseconds; in that round, the keep-alive and the grace period together.
  std::int64_t lease_and_grace = 0;
  int rounds = 0;  // that this node knows of, so that a new leader continues the count
  int restarts = 0;
  int oom_count = 0;
  bool excluded = false;  // an earlier leader has excluded this node, see Notice
};
// A rank of this node has failed, or the node was asked to stop; its ranks are being stopped. The
// time is by the leader's clock.
struct Failing {
  int round = 0;
  std::int64_t when = 0;
  int signo = 0;  // the signal that asked the node to stop; 0: a rank has failed
};
// How a node's part of a round ended: every rank exited with 0; the ranks were stopped before one
// failed; or a rank failed.
enum class Outcome { done, stopped, failed };
// The word for it in messages, and back. Any word that is not known counts as stopped.
std::string_view name_of(Outcome outcome);
Outcome outcome_named(std::string_view word);

// How far the ranks of this node are, for the status of the job.
struct Progress {
  int round = 0;
  std::string ranks;       // JSON
  std::int64_t idle = -1;  // nanoseconds since one of them was active; -1: not watched
};
// All ranks of this node in this round have ended, and no orphan process is left.
struct NodeEnded {
  int round = 0;
  Outcome outcome = Outcome::stopped;
  std::int64_t when = 0;  // of the first failure, by the leader's clock
  std::string cause;      // its name, such as "host_oom"
  int status = 0;
  std::int64_t lasted = 0;      // nanoseconds from the start to the failure
  std::string details;          // JSON: how the ranks ended
  int rank = -1;                // that failed first
  std::int64_t last_step = -1;  // that a rank of this node reported; -1: none
  bool certain = false;         // a restart fails in the same way
  bool cascade = false;         // a consequence of what happened to a rank of another node
  bool waited = false;          // may be a consequence of a rank that does not go on
  int suspended = -1;           // a rank of this node that was suspended then; -1: none
  std::string text = {};        // the cause in one line
};
// The node leaves; no process of the job is left on it.
struct Leave {
  int signo = 0;  // the signal that asked it to stop; 0: none
  std::string why;
};
// This node will be suspended once the leader has answered, or has been resumed.
struct Suspension {
  bool suspended = false;
};
struct StatusRequest {};
// The first message of a connection with the purpose "store": it carries the bytes of store clients
// on the agent's node, in this round.
struct RelayStore {
  int round = 0;
};

using Message = std::variant<Hello, Challenge, Proof, Refusal, Welcome, Notice, Begin, Stop, End,
                             StatusReply, Join, Failing, NodeEnded, Leave, StatusRequest,
                             RelayStore, Pause, Suspension, Progress, JobIdle>;

// Returns the message as one JSON object.
std::string encode(const Message& message);
// All texts in the result that are meant to be read are printable. Throws ProtocolError.
Message decode(std::string_view text);

}  // namespace mgpu::rendezvous
