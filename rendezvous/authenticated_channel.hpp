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

// Every conversation begins with these and a byte that is the sender's version. No store client
// begins with this letter.
inline constexpr std::string_view kProtocolMagic = "MGPU";

// How the two sides know each other.
struct Credentials {
  std::string secret;  // empty: anybody may come (--insecure)
  // Leader: the secret sealed so that only our user's programs can open it; agent: opens it.
  // Both throw with one line. Empty: there is no such service, the secret is known already.
  std::function<std::string(const std::string&)> seal = {};
  std::function<std::string(const std::string&)> unseal = {};
};

// One end of a conversation between an agent and the leader, without its socket: bytes in, messages
// out, and the other way round. Both sides prove that they know the secret, over a nonce of each;
// from then on every frame carries a code over its content, direction and number, so that nothing
// can be changed, replayed or left out unnoticed.
//
// After a ProtocolError the connection can only be closed, when output() is written.
class AuthenticatedChannel {
 public:
  AuthenticatedChannel(const AuthenticatedChannel&) = delete;
  AuthenticatedChannel& operator=(const AuthenticatedChannel&) = delete;
  virtual ~AuthenticatedChannel() = default;

  using Received = std::variant<Message, Heartbeat>;

  // Takes bytes as they came and adds what they amount to. Messages of the greeting are dealt
  // with here and not passed on.
  void receive(std::string_view bytes, std::vector<Received>& received);
  // Both only once is_open().
  void send(const Message& message);
  void send(const Heartbeat& heartbeat);
  // Tells the other side why this ends, at any time.
  void refuse(const Refusal& refusal);

  // What is to be written; whoever writes it takes it away.
  std::string& output() { return output_; }

  bool is_open() const { return open_; }
  // What datagrams are signed with: ours, and the other side's.
  const std::string& key_out() const { return key_out_; }
  const std::string& key_in() const { return key_in_; }

 protected:
  // `other` is the other side for messages to people.
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

// The agent's end.
class AgentChannel : public AuthenticatedChannel {
 public:
  // `who` is the leader for messages to people, such as its address.
  AgentChannel(Credentials credentials, std::string job, std::string purpose,
               std::string leader_name);

 private:
  void handle_handshake(Message&& message) override;

  Credentials credentials_;
  std::string job_, purpose_, leader_name_, nonce_;
  bool proven_ = false;
};

// The leader's end.
class LeaderChannel : public AuthenticatedChannel {
 public:
  // Both outlive the conversation.
  LeaderChannel(const Credentials& credentials, const std::string& job);

  // "agent" or "status", once open.
  const std::string& purpose() const { return hello_.purpose; }

 private:
  void handle_handshake(Message&& message) override;

  const Credentials& credentials_;
  const std::string& job_;
  std::optional<std::string> nonce_;
  Hello hello_;
};

}  // namespace mgpu::rendezvous
