#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Responses of etcd's JSON gateway. A missing field is 0 or empty, because the gateway omits such
// fields; numbers may be JSON strings or numbers. parse() returns nothing for any other deviation:
// the bytes are untrusted.
namespace mgpu::rendezvous::etcd {

struct KeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t mod_revision = 0;
  std::int64_t version = 0;  // how often the key was written since it was created
  std::int64_t lease = 0;

  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

struct Header {
  std::uint64_t cluster = 0;
  std::int64_t revision = 0;
  std::uint64_t raft_term = 0;  // the term that the member was in when it answered
};

struct PutAnswer {
  Header header;
  static std::optional<PutAnswer> parse(std::string_view body);
};

struct RangeAnswer {
  Header header;
  std::vector<KeyValue> keys;
  bool more = false;  // there are more keys than the limit
  static std::optional<RangeAnswer> parse(std::string_view body);
};

struct TransactionAnswer {
  Header header;
  bool succeeded = false;  // all comparisons were true
  // The keys that each operation found; none for a put or a removal.
  std::vector<std::vector<KeyValue>> found;
  static std::optional<TransactionAnswer> parse(std::string_view body);
};

struct LeaseAnswer {
  Header header;
  std::int64_t lease = 0;
  // Seconds granted by etcd; 0 in a keep-alive response: the lease no longer exists.
  std::int64_t ttl = 0;
  // Parses the response to a grant or to a keep-alive, which is wrapped as a stream element.
  static std::optional<LeaseAnswer> parse(std::string_view body);
};

struct SignInAnswer {
  Header header;
  std::string token;
  static std::optional<SignInAnswer> parse(std::string_view body);
};

struct WatchEvent {
  bool removed = false;
  KeyValue key;
};

// One line of a watch.
struct WatchAnswer {
  Header header;
  bool canceled = false;
  std::int64_t compact_revision = 0;  // not 0: the requested revisions are compacted
  std::string reason;                 // why it was canceled, or the error that ended the stream
  std::vector<WatchEvent> events;
  static std::optional<WatchAnswer> parse(std::string_view line);
};

// An error response.
struct ErrorAnswer {
  int code = 0;  // gRPC's: 16 is unauthenticated
  std::string message;
  static std::optional<ErrorAnswer> parse(std::string_view body);
};

// What the caller must do with a response.
enum class ResponseKind {
  ok,
  next_member,    // this member cannot answer, another one may
  sign_in,        // sign in with user and password, then repeat the request
  auth_disabled,  // authentication is off in this etcd: send no token
  rejected,       // the request is invalid: every member would reject it
  not_etcd,       // the server is not etcd v3
};
ResponseKind classify(int status, std::string_view body, ErrorAnswer& error);

}  // namespace mgpu::rendezvous::etcd
