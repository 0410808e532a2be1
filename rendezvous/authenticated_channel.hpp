#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/frame.hpp"
#include "rendezvous/heartbeat.hpp"
#include "rendezvous/protocol.hpp"
#include "rendezvous/sealer.hpp"

namespace mgpu::rendezvous {

// Every connection starts with these bytes and one byte with the sender's protocol version. Store
// clients never start with this letter, so one port serves both.
inline constexpr std::string_view kProtocolMagic = "MGPU";

// How the two sides authenticate each other.
struct Credentials {
  std::string secret;  // empty: everyone is accepted (--insecure)
  // With it only the leader has a secret. It sends the secret sealed, together with both nonces,
  // and the agent sends both nonces sealed: so each side knows that the other is of our user. Null:
  // both sides have the secret already.
  std::shared_ptr<Sealer> sealer = nullptr;
};

// One end of a connection between an agent and the leader, without the socket: it converts received
// bytes to messages and messages to bytes to send. In the handshake both sides prove that they have
// the secret; the proofs cover everything that was said before, with a nonce from each side. After
// that every frame carries an authentication code over its content, direction and sequence number,
// so that changed, replayed or missing frames are detected. Nothing is encrypted.
//
// After a ProtocolError, write output() and close the connection.
class AuthenticatedChannel {
 public:
  AuthenticatedChannel(const AuthenticatedChannel&) = delete;
  AuthenticatedChannel& operator=(const AuthenticatedChannel&) = delete;
  virtual ~AuthenticatedChannel() = default;

  // Bytes of store clients (store/relay_records.hpp).
  struct StoreRecords {
    std::string bytes;
  };
  using Received = std::variant<Message, Heartbeat, StoreRecords>;

  // Called when the handshake can go on after a call of the sealer: call receive(), with no bytes.
  void on_ready(std::function<void()> ready) { ready_ = std::move(ready); }

  // Parses received bytes, in pieces of any size, and appends the messages and heartbeats to
  // `received`. Handshake messages are handled here and not appended. Throws ProtocolError.
  void receive(std::string_view bytes, std::vector<Received>& received);
  // These require is_open().
  void send(const Message& message);
  void send(const Heartbeat& heartbeat);
  void send_store_records(std::string_view records);  // at most 4 MiB
  // Sends the other side the reason before the connection is closed; possible at any time.
  virtual void refuse(const Refusal& refusal);

  // The bytes to send; the caller removes what it has written.
  std::string& output() { return output_; }

  bool is_open() const { return open_; }
  // One line if the other side has named another version of the protocol, else empty: why the
  // connection is of no use even if it does not say so itself.
  virtual std::string version_conflict() const = 0;
  // The keys that sign datagrams: those we send, and those we receive.
  const std::string& key_out() const { return key_out_; }
  const std::string& key_in() const { return key_in_; }

 protected:
  // `peer_name` names the other side in error messages.
  explicit AuthenticatedChannel(std::string peer_name) : peer_name_(std::move(peer_name)) {
    output_ = kProtocolMagic;
    output_ += static_cast<char>(kProtocolVersion);
  }

  // `body` is the frame that contained the message.
  virtual void handle_handshake(Message&& message, std::string_view body) = 0;
  // The other side's version of the protocol, once its first bytes have arrived.
  virtual void check_version(std::uint8_t theirs) = 0;
  // A refusal that no authentication code covers. Throws unless it counts.
  virtual void check_refusal(const Refusal& refusal) = 0;
  void send_plain(const Message& message);
  std::string version_problem(std::uint8_t theirs) const;
  const std::string& peer_name() const { return peer_name_; }

  // What both sides have said: the agent's hello as sent, the leader's nonce, and its sealed
  // secret.
  struct Transcript {
    std::string hello, nonce, sealed;
  };
  void open(std::string_view secret, const Transcript& transcript, bool agent);
  static std::string proof(std::string_view secret, std::string_view side,
                           const Transcript& transcript);
  struct Versions {
    std::uint8_t leader = 0, agent = 0;  // of the protocol
  };
  static std::string refusal_proof(std::string_view secret, const Versions& versions,
                                   std::string_view hello, const Refusal& refusal);
  // For a call of the sealer: `next` continues the handshake with the text, in receive().
  Sealer::Done when_done(std::function<void(std::string text)> next);

 private:
  void check_preamble();
  void handle_frame(std::string_view body, std::vector<Received>& received);
  void send_signed(std::string body);

  std::string peer_name_, preamble_;
  FrameReader frames_;
  std::string output_;
  bool open_ = false;
  std::string key_out_, key_in_;
  std::uint64_t frames_out_ = 0, frames_in_ = 0;

  std::function<void()> ready_;
  bool waiting_ = false;                // for the sealer
  bool receiving_ = false;              // receive() is running
  std::function<void()> continuation_;  // what the sealer's result leads to
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The agent's end of a channel.
class AgentChannel : public AuthenticatedChannel {
 public:
  // `leader_name` names the leader in error messages, for example by its address.
  AgentChannel(Credentials credentials, std::string job, std::string purpose,
               std::string leader_name);

  std::string version_conflict() const override;
  // A time before the leader can have received our proof; valid once is_open().
  Nanoseconds proven_at() const { return proven_at_; }

 private:
  void handle_handshake(Message&& message, std::string_view body) override;
  void check_version(std::uint8_t theirs) override;
  void check_refusal(const Refusal& refusal) override;
  void handle_challenge(const Challenge& challenge, const std::string& secret);
  void prove(const std::string& secret, const std::string& sealed);
  std::string nonces(std::string_view side) const;

  Credentials credentials_;
  std::string nonce_;
  Transcript transcript_;
  std::uint8_t leader_version_ = kProtocolVersion;
  bool challenged_ = false;
  Nanoseconds proven_at_{0};
};

// The leader's end of a channel.
class LeaderChannel : public AuthenticatedChannel {
 public:
  // Both arguments must outlive the channel.
  LeaderChannel(const Credentials& credentials, const std::string& job);

  void refuse(const Refusal& refusal) override;
  std::string version_conflict() const override;
  // "agent" or "status"; valid once is_open().
  const std::string& purpose() const { return hello_.purpose; }

 private:
  void handle_handshake(Message&& message, std::string_view body) override;
  void check_version(std::uint8_t theirs) override;
  void check_refusal(const Refusal& refusal) override;
  void handle_hello();
  void handle_proof(const Proof& proof);
  void challenge(const std::string& sealed);

  const Credentials& credentials_;
  const std::string& job_;
  Hello hello_;
  std::string agent_nonce_;
  Transcript transcript_;
  std::uint8_t agent_version_ = kProtocolVersion;
  enum class State { no_hello, challenged, proven } state_ = State::no_hello;
};

}  // namespace mgpu::rendezvous
