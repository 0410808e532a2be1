#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What etcd's JSON gateway answers. What it leaves out is 0 or empty (that is how it writes them);
// numbers may be strings or numbers. Everything else that is not as expected makes parse() give
// nothing: the bytes may come from anybody.
namespace mgpu::rendezvous::etcd {

struct KeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t mod_revision = 0;
  std::int64_t lease = 0;

  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

struct Header {
  std::uint64_t cluster = 0;
  std::int64_t revision = 0;
  std::uint64_t raft_term = 0;  // as the member knew it when it answered
};

struct PutAnswer {
  Header header;
  static std::optional<PutAnswer> parse(std::string_view body);
};

struct RangeAnswer {
  Header header;
  std::vector<KeyValue> keys;
  bool more = false;  // than the limit let through
  static std::optional<RangeAnswer> parse(std::string_view body);
};

struct TransactionAnswer {
  Header header;
  bool succeeded = false;  // all compares held
  // What each operation found: nothing for a put or a removal.
  std::vector<std::vector<KeyValue>> found;
  static std::optional<TransactionAnswer> parse(std::string_view body);
};

struct LeaseAnswer {
  Header header;
  std::int64_t lease = 0;
  std::int64_t ttl = 0;  // in seconds, as etcd gave it; 0 from a keep-alive: the lease is gone
  // Of a grant, or of a keep-alive, which is wrapped as the element of a stream.
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
  std::int64_t compact_revision = 0;  // not 0: what was asked for is no longer kept
  std::string reason;                 // why it was canceled, or the error that ended the stream
  std::vector<WatchEvent> events;
  static std::optional<WatchAnswer> parse(std::string_view line);
};

// An answer that is no success.
struct ErrorAnswer {
  int code = 0;  // gRPC's: 16 is unauthenticated
  std::string message;
  static std::optional<ErrorAnswer> parse(std::string_view body);
};

// What an answer means to the one who asked.
enum class ResponseKind {
  ok,
  next_member,    // this member cannot, another may
  sign_in,        // with user and password, then once more
  auth_disabled,  // this etcd knows no users: ask without a token
  rejected,       // the request itself: every member would say the same
  not_etcd,       // whatever answers there, it is no etcd v3
};
ResponseKind classify(int status, std::string_view body, ErrorAnswer& error);

}  // namespace mgpu::rendezvous::etcd
