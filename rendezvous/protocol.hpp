#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

namespace mgpu::rendezvous {

// What agents and the leader say to each other. Raise the version when a message changes its
// meaning: different versions refuse each other.
inline constexpr std::uint8_t kProtocolVersion = 1;

// Not what was agreed on; the connection it came by is closed.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// What another try will not change: another version, another secret.
struct Mismatch : ProtocolError {
  using ProtocolError::ProtocolError;
};

// --- Before both have proven that they know the secret.

struct Hello {
  std::string job;
  std::string nonce;    // hex
  std::string purpose;  // "agent", "status"
  bool sealed = false;  // asks for the secret, sealed for our user
};
struct Challenge {
  std::string nonce;   // hex
  std::string proof;   // hex: the leader knows the secret
  std::string sealed;  // the secret, for those that our user's services can open; may be empty
};
struct Proof {
  std::string proof;  // hex: the agent knows it too
};
// The end of a conversation, at any time. `status` is what the refused program ends with.
struct Refusal {
  int status = 2;
  std::string why;
};

// --- Leader to agent.

struct Welcome {
  std::uint64_t session = 0;            // stands in every datagram of this conversation
  std::int64_t heartbeat_interval = 0;  // nanoseconds
  std::int64_t keep_alive = 0;          // nanoseconds
};
// For people: what is waited for.
struct Notice {
  std::string text;
};
// A round begins: this node is in it.
struct Begin {
  int round = 0;
  int restarts = 0;  // failures of the job so far that led to a restart
  int oom_count = 0;
  int node_rank = 0;
  int nodes = 1;
  int base_rank = 0;
  int world_size = 1;
  std::string master_addr;  // empty: the leader's address as the node reached it
  int master_port = 0;      // 0: the port it reached it at
};
struct Stop {
  int round = 0;
  std::string why;
  int signo = 15;
};
// The job is over.
struct End {
  int status = 0;
  std::string message;  // for people, may be empty
};
struct StatusReply {
  std::string text;  // JSON
};

// --- Agent to leader.

struct Join {
  std::string host;
  int nproc = 1;
  int node_rank = -1;  // asked for; -1: none
  int position = -1;   // in the scheduler's order; -1: none
  bool leads = false;  // the leader's own node
  int rank0_port = 0;  // free there, for rank 0 to bind; 0: none
  int nodes = 0;       // of the last round that it was in
  int rounds = 0;      // that it has seen, so that a new leader goes on counting
  int restarts = 0;
  int oom_count = 0;
};
// A rank has failed, or the node was told to stop; its ranks are being stopped. Time by the
// leader's clock.
struct Failing {
  int round = 0;
  std::int64_t when = 0;
  int signo = 0;  // that the node was told to stop with; 0: a rank has failed
};
// Nothing of this node's part of a round is left.
struct NodeEnded {
  int round = 0;
  std::string outcome;    // "done", "stopped", "failed"
  std::int64_t when = 0;  // of the first failure, by the leader's clock
  std::string cause;      // a word
  int status = 0;
  std::int64_t lasted = 0;  // nanoseconds from the start to the failure
  std::string details;      // JSON: how the ranks ended
};
// The node goes, with nothing of the job left on it.
struct Leave {
  int signo = 0;  // that it was told to stop with; 0: none
  std::string why;
};
struct StatusRequest {};

using Message = std::variant<Hello, Challenge, Proof, Refusal, Welcome, Notice, Begin, Stop, End,
                             StatusReply, Join, Failing, NodeEnded, Leave, StatusRequest>;

// As one JSON object.
std::string encode(const Message& message);
// Throws ProtocolError.
Message decode(std::string_view text);

}  // namespace mgpu::rendezvous
