#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/auth.hpp"
#include "rendezvous/etcd/answers.hpp"

namespace mgpu::rendezvous::etcd {

// Signs the values of a job in etcd, and decides which of the values there to accept: others may
// be able to write there too. A signed value is
//
//   <value> hmac-sha256:<64 hexadecimal digits>
//
// The authentication code covers the key's name, the value, the key's version and, except for
// version 1, its create revision. etcd sets these two numbers and no client can choose them, so a
// code is right for one write only: an old value that is put back has another version or another
// create revision. A client that creates a key does not know the create revision yet, so version 1
// of a key is signed without it and can be put back by deleting the key first. A value for which
// that matters must not be version 1.
class Signer {
 public:
  enum class Verdict {
    accepted,
    no_code,     // there is no code, but the job has a secret
    wrong_code,  // of another secret, key or write
    no_secret,   // there is a code, but this side has no secret to check it with
  };
  struct Checked {
    Verdict verdict = Verdict::accepted;
    std::string value;  // without the code; empty unless accepted
  };

  Signer() = default;  // signs nothing, and accepts values without a code only
  // An empty secret is the same as none. `accept_unsigned`: values without a code are accepted
  // although there is a secret.
  Signer(std::string_view secret, bool accept_unsigned);

  bool has_secret() const { return key_.has_value(); }
  // The text to write for `write.value`; `write` has the numbers that the key will have then.
  // Without a secret that is the value itself.
  std::string sign(const KeyValue& write) const;
  Checked check(const KeyValue& read) const;

 private:
  std::string code_of(const KeyValue& write, std::string_view value) const;

  std::optional<auth::Digest> key_;
  bool accept_unsigned_ = false;
};

// One line for the user: why the value of a key is ignored, and what to do. Empty if it is
// accepted.
std::string rejection_text(std::string_view key, Signer::Verdict verdict);

}  // namespace mgpu::rendezvous::etcd
