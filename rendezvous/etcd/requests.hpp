#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Requests to etcd's JSON gateway. Their bodies have bytes in base64, and 64-bit numbers as
// strings.
namespace mgpu::rendezvous::etcd {

// A POST request with a JSON body, for a connection that is used once. `token` is the token of the
// signed-in user, or empty.
std::string http_post(std::string_view authority, std::string_view path, std::string_view token,
                      std::string_view body);

// A condition for the `then` branch of a transaction. A key that does not exist has revision 0.
struct Compare {
  enum class What { create_revision, mod_revision };

  std::string key;
  What what = What::create_revision;
  std::int64_t is = 0;
};

// One step of a transaction.
struct Operation {
  enum class What { put, range, remove };

  What what = What::range;
  std::string key;
  std::string value = {};  // of a put
  std::int64_t lease = 0;  // of a put; 0: none
};

struct Transaction {
  std::vector<Compare> if_all = {};
  std::vector<Operation> then = {};
  std::vector<Operation> otherwise = {};
};

// The end of the range of all keys that start with `prefix`, which must not be empty.
std::string prefix_end(std::string_view prefix);

std::string put_request(std::string_view key, std::string_view value, std::int64_t lease);
// Requests one key, or, with `end`, all keys from `key` up to `end`.
std::string range_request(std::string_view key, std::string_view end, std::int64_t limit);
std::string transaction_request(const Transaction& transaction);
std::string grant_request(std::int64_t lease, std::int64_t ttl);
std::string lease_request(std::int64_t lease);  // of keep-alive and revoke
std::string sign_in_request(std::string_view user, std::string_view password);
std::string watch_request(std::string_view key, std::string_view end, std::int64_t from_revision);

}  // namespace mgpu::rendezvous::etcd
