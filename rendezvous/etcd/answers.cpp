#include "rendezvous/etcd/answers.hpp"

#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/base/base64.hpp"
#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::rendezvous::etcd {
namespace {

using nlohmann::json;

// Thrown and caught in this file: an unexpected response.
struct Malformed {};

const json* find(const json& object, const char* name) {
  if (!object.is_object()) throw Malformed();
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

template <class Number>
Number number(const json& object, const char* name) {
  const json* field = find(object, name);
  if (!field) return 0;
  if (fits<Number>(*field)) return field->get<Number>();
  if (!field->is_string()) throw Malformed();
  const auto& text = field->get_ref<const std::string&>();
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) throw Malformed();
  return value;
}

std::string text(const json& object, const char* name) {
  const json* field = find(object, name);
  if (!field) return {};
  if (!fits<std::string>(*field)) throw Malformed();
  return field->get<std::string>();
}

std::string bytes(const json& object, const char* name) {
  auto decoded = from_base64(text(object, name));
  if (!decoded) throw Malformed();
  return std::move(*decoded);
}

bool flag(const json& object, const char* name) {
  const json* field = find(object, name);
  if (field && !fits<bool>(*field)) throw Malformed();
  return field && field->get<bool>();
}

Header header_of(const json& answer) {
  const json* fields = find(answer, "header");
  if (!fields) throw Malformed();  // every response of etcd has one
  return {number<std::uint64_t>(*fields, "cluster_id"), number<std::int64_t>(*fields, "revision"),
          number<std::uint64_t>(*fields, "raft_term")};
}

KeyValue key_of(const json& fields) {
  const auto version = number<std::int64_t>(fields, "version");
  // Cannot be real; a writer adds 1.
  if (version < 0 || version == INT64_MAX) throw Malformed();
  return {.key = bytes(fields, "key"),
          .value = bytes(fields, "value"),
          .create_revision = number<std::int64_t>(fields, "create_revision"),
          .mod_revision = number<std::int64_t>(fields, "mod_revision"),
          .version = version,
          .lease = number<std::int64_t>(fields, "lease")};
}

template <class Read>
void for_each(const json& object, const char* name, Read read) {
  const json* list = find(object, name);
  if (!list) return;
  if (!list->is_array()) throw Malformed();
  for (const auto& element : *list) read(element);
}

std::vector<KeyValue> keys_of(const json& range) {
  std::vector<KeyValue> keys;
  for_each(range, "kvs", [&](const json& fields) { keys.push_back(key_of(fields)); });
  return keys;
}

// Stream elements are wrapped in "result".
const json& unwrapped(const json& answer) {
  const json* result = find(answer, "result");
  return result ? *result : answer;
}

template <class Answer, class Read>
std::optional<Answer> parse_with(std::string_view body, Read read) {
  const auto parsed = rendezvous::parse_untrusted_json(body);
  if (!parsed.is_object()) return std::nullopt;
  try {
    return read(parsed);
  } catch (const Malformed&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<PutAnswer> PutAnswer::parse(std::string_view body) {
  return parse_with<PutAnswer>(
      body, [](const json& answer) { return PutAnswer{.header = header_of(answer)}; });
}

std::optional<RangeAnswer> RangeAnswer::parse(std::string_view body) {
  return parse_with<RangeAnswer>(body, [](const json& answer) {
    return RangeAnswer{
        .header = header_of(answer), .keys = keys_of(answer), .more = flag(answer, "more")};
  });
}

std::optional<TransactionAnswer> TransactionAnswer::parse(std::string_view body) {
  return parse_with<TransactionAnswer>(body, [](const json& answer) {
    TransactionAnswer result{.header = header_of(answer), .succeeded = flag(answer, "succeeded")};
    for_each(answer, "responses", [&](const json& response) {
      const json* range = find(response, "response_range");
      result.found.push_back(range ? keys_of(*range) : std::vector<KeyValue>());
    });
    return result;
  });
}

std::optional<LeaseAnswer> LeaseAnswer::parse(std::string_view body) {
  return parse_with<LeaseAnswer>(body, [](const json& answer) {
    const json& result = unwrapped(answer);
    const LeaseAnswer lease{.header = header_of(result),
                            .lease = number<std::int64_t>(result, "ID"),
                            .ttl = number<std::int64_t>(result, "TTL")};
    constexpr std::int64_t kLongest = 9'000'000'000;  // etcd's own limit
    if (lease.ttl < 0 || lease.ttl > kLongest) throw Malformed();
    return lease;
  });
}

std::optional<SignInAnswer> SignInAnswer::parse(std::string_view body) {
  return parse_with<SignInAnswer>(body, [](const json& answer) {
    SignInAnswer result{.header = header_of(answer), .token = text(answer, "token")};
    // The token is sent in a header line.
    if (result.token.empty() || result.token.size() > (8 << 10)) throw Malformed();
    for (const char c : result.token)
      if (c <= ' ' || c > '~') throw Malformed();
    return result;
  });
}

std::optional<WatchAnswer> WatchAnswer::parse(std::string_view line) {
  return parse_with<WatchAnswer>(line, [](const json& answer) {
    if (const json* error = find(answer, "error"); error && error->is_object())
      return WatchAnswer{.canceled = true, .reason = text(*error, "message")};
    const json* result = find(answer, "result");
    if (!result) throw Malformed();
    WatchAnswer watch{.header = header_of(*result),
                      .canceled = flag(*result, "canceled"),
                      .compact_revision = number<std::int64_t>(*result, "compact_revision"),
                      .reason = text(*result, "cancel_reason")};
    for_each(*result, "events", [&](const json& event) {
      const json* key = find(event, "kv");
      const auto type = text(event, "type");
      if (!key || (!type.empty() && type != "PUT" && type != "DELETE")) throw Malformed();
      watch.events.push_back({.removed = type == "DELETE", .key = key_of(*key)});
    });
    return watch;
  });
}

std::optional<ErrorAnswer> ErrorAnswer::parse(std::string_view body) {
  return parse_with<ErrorAnswer>(body, [](const json& answer) {
    const json* error = find(answer, "error");
    const json& fields = error && error->is_object() ? *error : answer;
    ErrorAnswer result{.code = number<int>(fields, "code"), .message = text(fields, "message")};
    if (result.code == 0) result.code = number<int>(fields, "grpc_code");
    if (result.message.empty() && error && error->is_string()) result.message = *error;
    if (result.code == 0 && result.message.empty()) throw Malformed();
    constexpr std::string_view kPrefix = "etcdserver: ";
    if (result.message.starts_with(kPrefix)) result.message.erase(0, kPrefix.size());
    result.message = shown(result.message, 200);
    return result;
  });
}

ResponseKind classify(int status, std::string_view body, ErrorAnswer& error) {
  if (status == 200) return ResponseKind::ok;
  auto answer = ErrorAnswer::parse(body);
  if (!answer) return ResponseKind::not_etcd;
  error = std::move(*answer);
  const auto message_contains = [&](std::string_view words) {
    return error.message.find(words) != std::string::npos;
  };
  switch (error.code) {
    case 16:  // unauthenticated: the token is unknown or expired
      return ResponseKind::sign_in;
    case 3:  // invalid argument
      if (message_contains("user name is empty") || message_contains("auth store is old"))
        return ResponseKind::sign_in;
      return ResponseKind::rejected;
    case 9:  // failed precondition
      return message_contains("authentication is not enabled") ? ResponseKind::auth_disabled
                                                               : ResponseKind::rejected;
    case 5:   // not found: a lease
    case 6:   // already exists
    case 7:   // permission denied
    case 11:  // out of range: compacted, or a future revision
      return ResponseKind::rejected;
    default:  // time-outs, no leader, no space, not implemented
      return ResponseKind::next_member;
  }
}

}  // namespace mgpu::rendezvous::etcd
