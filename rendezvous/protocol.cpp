#include "rendezvous/protocol.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous {
namespace {

using nlohmann::json;

// One list of fields per message is used for both encoding and decoding.
template <class Visit>
void fields(Hello& m, Visit&& field) {
  field("job", m.job), field("nonce", m.nonce);
  field("purpose", m.purpose), field("sealed", m.sealed);
}
template <class Visit>
void fields(Challenge& m, Visit&& field) {
  field("nonce", m.nonce), field("proof", m.proof), field("sealed", m.sealed);
}
template <class Visit>
void fields(Proof& m, Visit&& field) {
  field("proof", m.proof), field("sealed", m.sealed);
}
template <class Visit>
void fields(Refusal& m, Visit&& field) {
  field("status", m.status), field("why", m.why), field("proof", m.proof);
}
template <class Visit>
void fields(Welcome& m, Visit&& field) {
  field("session", m.session), field("beat_interval", m.heartbeat_interval);
  field("keep_alive", m.keep_alive);
}
template <class Visit>
void fields(Notice& m, Visit&& field) {
  field("text", m.text), field("excluded", m.excluded);
}
template <class Visit>
void fields(Begin& m, Visit&& field) {
  field("round", m.round), field("restarts", m.restarts), field("oom_count", m.oom_count);
  field("node_rank", m.node_rank), field("nodes", m.nodes), field("base_rank", m.base_rank);
  field("to_rejoin", m.to_rejoin);
  field("world_size", m.world_size), field("grace", m.grace);
  field("master_addr", m.master_addr);
  field("master_port", m.master_port), field("direct_store", m.direct_store);
}
template <class Visit>
void fields(Stop& m, Visit&& field) {
  field("round", m.round), field("why", m.why), field("signo", m.signo);
  field("failed", m.failed);
}
template <class Visit>
void fields(End& m, Visit&& field) {
  field("status", m.status), field("words", m.message);
}
template <class Visit>
void fields(StatusReply& m, Visit&& field) {
  field("text", m.text);
}
template <class Visit>
void fields(Join& m, Visit&& field) {
  field("host", m.host), field("nproc", m.nproc), field("node_rank", m.node_rank);
  field("position", m.position), field("leads", m.leads), field("rank0_port", m.rank0_port);
  field("rounds", m.rounds), field("restarts", m.restarts), field("oom_count", m.oom_count);
  field("nodes", m.nodes), field("grace", m.grace);
  field("lease_and_grace", m.lease_and_grace), field("excluded", m.excluded);
}
template <class Visit>
void fields(Failing& m, Visit&& field) {
  field("round", m.round), field("when", m.when), field("signo", m.signo);
}
template <class Visit>
void fields(NodeEnded& m, Visit&& field) {
  field("round", m.round), field("outcome", m.outcome), field("when", m.when);
  field("cause", m.cause), field("status", m.status), field("lasted", m.lasted);
  field("rank", m.rank), field("details", m.details), field("last_step", m.last_step);
  field("certain", m.certain), field("text", m.text), field("cascade", m.cascade);
  field("waited", m.waited), field("suspended", m.suspended);
}
template <class Visit>
void fields(Leave& m, Visit&& field) {
  field("signo", m.signo), field("why", m.why);
}
template <class Visit>
void fields(Pause& m, Visit&& field) {
  field("ranks", m.ranks), field("leader", m.leader), field("host", m.host);
}
template <class Visit>
void fields(Suspension& m, Visit&& field) {
  field("suspended", m.suspended);
}
template <class Visit>
void fields(Progress& m, Visit&& field) {
  field("round", m.round), field("ranks", m.ranks), field("idle", m.idle);
}
template <class Visit>
void fields(JobIdle& m, Visit&& field) {
  field("round", m.round), field("time", m.time);
}
template <class Visit>
void fields(StatusRequest&, Visit&&) {}
template <class Visit>
void fields(RelayStore& m, Visit&& field) {
  field("round", m.round);
}

// In the order of the variant's alternatives.
constexpr std::array<const char*, std::variant_size_v<Message>> kNames = {
    "hello",    "challenge", "proof",  "refusal",    "welcome",  "notice", "begin",
    "stop",     "end",       "answer", "join",       "failing",  "ended",  "leave",
    "question", "store",     "pause",  "suspension", "progress", "idle"};

template <class Value>
void read(const json& object, const char* name, Value& value) {
  if (read_field(object, name, value) == FieldState::wrong_type)
    throw ProtocolError(fmt::format("a message whose \"{}\" has the wrong type", name));
}

void read(const json& object, const char* name, Outcome& outcome) {
  std::string word;
  read(object, name, word);
  outcome = outcome_named(word);
}

template <class Value>
Value as_json(const Value& value) {
  return value;
}
std::string_view as_json(Outcome outcome) {
  return name_of(outcome);
}

// JSON, and names that are compared: whoever prints a part of them makes it printable.
bool is_kept_exactly(std::string_view message, std::string_view field) {
  return field == "details" || field == "job" || (message == "answer" && field == "text") ||
         (message == "progress" && field == "ranks");
}

template <std::size_t Index = 0>
Message parse(std::string_view name, const json& object) {
  if constexpr (Index < kNames.size()) {
    if (name != kNames[Index]) return parse<Index + 1>(name, object);
    std::variant_alternative_t<Index, Message> message;
    fields(message, [&](const char* field, auto& value) {
      read(object, field, value);
      if constexpr (std::is_same_v<decltype(value), std::string&>)
        if (!is_kept_exactly(name, field)) value = printable(value);
    });
    return message;
  } else {
    throw ProtocolError(fmt::format("a message of unknown type {}", shown(name, 32)));
  }
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::done:
      return "done";
    case Outcome::failed:
      return "failed";
    case Outcome::stopped:
      break;
  }
  return "stopped";
}

Outcome outcome_named(std::string_view word) {
  for (const auto outcome : {Outcome::done, Outcome::failed})
    if (word == name_of(outcome)) return outcome;
  return Outcome::stopped;
}

std::string encode(const Message& message) {
  json object = {{"is", kNames[message.index()]}};
  std::visit(
      [&](auto copy) {
        fields(copy, [&](const char* name, const auto& value) {
          write_field(object, name, as_json(value));
        });
      },
      message);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Message decode(std::string_view text) {
  // Messages are flat; the depth limit protects the stack from a malicious one.
  const auto flat = [](int depth, json::parse_event_t, json&) {
    if (depth > 2) throw ProtocolError("a nested message");
    return true;
  };
  const json object = json::parse(text, flat, false);
  if (!object.is_object()) throw ProtocolError("a message that is not a JSON object");
  const auto kind = object.find("is");
  if (kind == object.end() || !kind->is_string()) throw ProtocolError("a message without a type");
  return parse(kind->get_ref<const std::string&>(), object);
}

}  // namespace mgpu::rendezvous
