// Bytes on a connection for agents, which any peer may send. The first byte selects how the rest
// is used: bit 0: an agent receives it, else a leader; bit 1: after a real handshake, as
// messages with a valid code; bit 2: else, as frames after a preamble; bits 3-7: split into
// pieces of that size. A message is two bytes for its length and its text, with the high bit of
// the first for a heartbeat. What a leader receives is passed on to the coordinator.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/lifecycle/report.hpp"
#include "launcher/nodes/coordinator.hpp"
#include "rendezvous/auth.hpp"
#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/heartbeat.hpp"
#include "rendezvous/store/relay_records.hpp"

using namespace mgpu::rendezvous;
using mgpu::launcher::Coordinator;
using mgpu::launcher::LeaderTime;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

const Credentials kCredentials{.secret = "secret"};
const std::string kJob = "job";
constexpr std::size_t kCodeBytes = 16;

// Store records are read as a leader and an agent read them.
void check_records(std::string_view bytes) {
  std::size_t data = 0;
  try {
    store::RelayRecordReader reader(bytes);
    for (store::RelayRecord record; reader.next(record);) data += record.bytes.size();
  } catch (const store::RelayError&) {
  }
  require(data <= bytes.size());
}

struct Piece {
  bool is_beat = false;
  std::string_view text;
};

std::vector<Piece> pieces_of(std::string_view bytes) {
  std::vector<Piece> pieces;
  while (bytes.size() > 2) {
    const auto first = static_cast<std::uint8_t>(bytes[0]);
    const std::size_t length = (first & 0x7fU) << 8 | static_cast<std::uint8_t>(bytes[1]);
    bytes.remove_prefix(2);
    pieces.push_back({(first & 0x80) != 0, bytes.substr(0, length)});
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  return pieces;
}

Heartbeat beat_of(std::string_view text) {
  std::int64_t numbers[5] = {};
  std::memcpy(numbers, text.data(), std::min(text.size(), sizeof numbers));
  return {.session = static_cast<std::uint64_t>(numbers[0]),
          .number = static_cast<std::uint64_t>(numbers[1]),
          .sent_at = numbers[2],
          .peer_sent_at = numbers[3],
          .received_at = numbers[4]};
}

// Frames as a peer that knows the secret would send them.
std::string signed_frames(std::string_view bytes, const std::string& key) {
  std::string out;
  std::uint64_t number = 0;
  for (const auto& piece : pieces_of(bytes)) {
    std::string body =
        piece.is_beat ? 'B' + encode(beat_of(piece.text), key) : std::string(piece.text);
    const std::string_view count(reinterpret_cast<const char*>(&number), sizeof number);
    const auto code = auth::hmac(key, {count, body});
    ++number;
    body.append(code.data(), kCodeBytes);
    put_frame(out, body);
  }
  return out;
}

std::string plain_frames(std::string_view bytes) {
  std::string out(kProtocolMagic);
  out += static_cast<char>(kProtocolVersion);
  for (const auto& piece : pieces_of(bytes)) put_frame(out, piece.text);
  return out;
}

void receive(AuthenticatedChannel& channel, std::string_view bytes, std::size_t size,
             std::vector<AuthenticatedChannel::Received>& received) {
  try {
    while (!bytes.empty()) {
      channel.receive(bytes.substr(0, size), received);
      bytes.remove_prefix(std::min(size, bytes.size()));
    }
  } catch (const ProtocolError& error) {
    require(*error.what() != '\0');
  }
}

// Three nodes that send what the fuzzer chooses, and time that advances.
void decide(const std::vector<AuthenticatedChannel::Received>& received) {
  LeaderTime now = std::chrono::hours(1);
  Coordinator coordinator({.min_nodes = 1,
                           .max_nodes = 3,
                           .limits = {.max_restarts = 3, .retry_delay = std::chrono::seconds(1)}},
                          {}, now);
  std::uint64_t node = 0;
  const auto check = [&](const Coordinator::Actions& actions) {
    for (const auto& action : actions) {
      const auto* over = std::get_if<mgpu::launcher::JobEnded>(&action);
      if (over) require(over->status >= 0 && over->status < 256);
      const auto* tell = std::get_if<mgpu::launcher::SendMessage>(&action);
      const auto* begin = tell ? std::get_if<Begin>(&tell->message) : nullptr;
      if (begin) require(begin->base_rank >= 0 && begin->base_rank < begin->world_size);
    }
  };
  for (const auto& item : received) {
    const auto* message = std::get_if<Message>(&item);
    if (!message) continue;
    const std::uint64_t speaker = node % 3 + 1;
    if (const auto* join = std::get_if<Join>(message))
      check(coordinator.joined(++node, *join, now));
    else if (const auto* failing = std::get_if<Failing>(message))
      check(coordinator.failing(speaker, *failing, now));
    else if (const auto* end = std::get_if<NodeEnded>(message))
      check(coordinator.ended(speaker, *end, now));
    else if (const auto* leave = std::get_if<Leave>(message))
      check(coordinator.leaves(speaker, *leave, now));
    else if (const auto* suspension = std::get_if<Suspension>(message))
      check(coordinator.suspends(speaker, suspension->suspended, now));
    else if (std::holds_alternative<StatusRequest>(*message))
      check(coordinator.gone(speaker, now - std::chrono::seconds(5), false, "x", now));
    check(coordinator.tick(now));
    if (const auto deadline = coordinator.next_deadline()) {
      require(*deadline > now);
      // Grace periods may be years long, and times must not overflow.
      if (std::holds_alternative<Notice>(*message))
        now = std::min(*deadline, now + std::chrono::hours(24));
    }
    for (const auto& view : coordinator.view()) require(view.nproc > 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const bool to_agent = (input[0] & 1) != 0, greeted = (input[0] & 2) != 0;
  const std::size_t piece = input[0] >= 248 ? 65536 : 1 + (input[0] >> 3);
  const std::string_view rest(reinterpret_cast<const char*>(input) + 1, size - 1);
  AgentChannel agent(kCredentials, kJob, "agent", "the leader");
  LeaderChannel leader(kCredentials, kJob);
  std::vector<AuthenticatedChannel::Received> received;
  if (greeted) {
    while (!agent.output().empty() || !leader.output().empty()) {
      leader.receive(std::exchange(agent.output(), {}), received);
      agent.receive(std::exchange(leader.output(), {}), received);
    }
    require(agent.is_open() && leader.is_open() && received.empty());
  }
  AuthenticatedChannel& channel = to_agent ? static_cast<AuthenticatedChannel&>(agent) : leader;
  receive(channel,
          greeted               ? signed_frames(rest, channel.key_in())
          : (input[0] & 4) != 0 ? plain_frames(rest)
                                : std::string(rest),
          piece, received);
  require(channel.is_open() == greeted);  // a proof cannot be guessed
  HeartbeatTracker heartbeats;
  LeaderTime now = std::chrono::hours(1);
  heartbeats.begin(now);
  for (const auto& item : received) {
    if (const auto* heartbeat = std::get_if<Heartbeat>(&item)) {
      now += std::chrono::seconds(1);
      heartbeats.receive(*heartbeat, now);
      require(heartbeats.confirmed_until() <= now && heartbeats.round_trip().count() >= 0);
    } else if (const auto* records = std::get_if<AuthenticatedChannel::StoreRecords>(&item)) {
      require(greeted);
      check_records(records->bytes);
    } else {
      const auto& message = std::get<Message>(item);
      require(greeted || std::holds_alternative<Refusal>(message));
      require(encode(decode(encode(message))) == encode(message));
    }
  }
  if (!to_agent) decide(received);
  return 0;
}
