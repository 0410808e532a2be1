#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/frame.hpp"
#include "rendezvous/heartbeat.hpp"
#include "rendezvous/protocol.hpp"

namespace mgpu::rendezvous {

// Every connection starts with these bytes and one byte with the sender's protocol version. Store
// clients never start with this letter, so one port serves both.
inline constexpr std::string_view kProtocolMagic = "MGPU";

// How the two sides authenticate each other.
struct Credentials {
  std::string secret;  // empty: everyone is accepted (--insecure)
  // The leader calls seal() to encrypt the secret so that only programs of the same user can
  // decrypt it; the agent calls unseal(). Both throw an exception with a one-line message. Empty:
  // both sides have the secret already.
  std::function<std::string(const std::string&)> seal = {};
  std::function<std::string(const std::string&)> unseal = {};
};

// One end of a connection between an agent and the leader, without the socket: it converts received
// bytes to messages and messages to bytes to send. In the handshake both sides prove that they have
// the secret, using a nonce from each. After that every frame carries an authentication code over
// its content, direction and sequence number, so that changed, replayed or missing frames are
// detected. Nothing is encrypted.
//
// After a ProtocolError, write output() and close the connection.
class AuthenticatedChannel {
 public:
  AuthenticatedChannel(const AuthenticatedChannel&) = delete;
  AuthenticatedChannel& operator=(const AuthenticatedChannel&) = delete;
  virtual ~AuthenticatedChannel() = default;

  using Received = std::variant<Message, Heartbeat>;

  // Parses received bytes, in pieces of any size, and appends the messages and heartbeats to
  // `received`. Handshake messages are handled here and not appended. Throws ProtocolError.
  void receive(std::string_view bytes, std::vector<Received>& received);
  // Both require is_open().
  void send(const Message& message);
  void send(const Heartbeat& heartbeat);
  // Sends the other side the reason before the connection is closed; possible at any time.
  void refuse(const Refusal& refusal);

  // The bytes to send; the caller removes what it has written.
  std::string& output() { return output_; }

  bool is_open() const { return open_; }
  // The keys that sign datagrams: those we send, and those we receive.
  const std::string& key_out() const { return key_out_; }
  const std::string& key_in() const { return key_in_; }

 protected:
  // `peer_name` names the other side in error messages.
  explicit AuthenticatedChannel(std::string peer_name) : peer_name_(std::move(peer_name)) {
    output_ = kProtocolMagic;
    output_ += static_cast<char>(kProtocolVersion);
  }

  virtual void handle_handshake(Message&& message) = 0;
  void send_plain(const Message& message);
  void open(std::string_view secret, std::string_view agent_nonce, std::string_view leader_nonce,
            bool agent);
  static std::string proof(std::string_view secret, std::string_view side,
                           std::string_view agent_nonce, std::string_view leader_nonce,
                           std::string_view job);

 private:
  void check_preamble();
  void handle_frame(std::string_view body, std::vector<Received>& received);

  std::string peer_name_, preamble_;
  FrameReader frames_;
  std::string output_;
  bool open_ = false;
  std::string key_out_, key_in_;
  std::uint64_t frames_out_ = 0, frames_in_ = 0;
};

// The agent's end of a channel.
class AgentChannel : public AuthenticatedChannel {
 public:
  // `leader_name` names the leader in error messages, for example by its address.
  AgentChannel(Credentials credentials, std::string job, std::string purpose,
               std::string leader_name);

 private:
  void handle_handshake(Message&& message) override;

  Credentials credentials_;
  std::string job_, purpose_, leader_name_, nonce_;
  bool proven_ = false;
};

// The leader's end of a channel.
class LeaderChannel : public AuthenticatedChannel {
 public:
  // Both arguments must outlive the channel.
  LeaderChannel(const Credentials& credentials, const std::string& job);

  // "agent" or "status"; valid once is_open().
  const std::string& purpose() const { return hello_.purpose; }

 private:
  void handle_handshake(Message&& message) override;

  const Credentials& credentials_;
  const std::string& job_;
  std::optional<std::string> nonce_;
  Hello hello_;
};

}  // namespace mgpu::rendezvous
