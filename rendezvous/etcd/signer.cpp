#include "rendezvous/etcd/signer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous::etcd {
namespace {

constexpr std::string_view kCodeMark = " hmac-sha256:";
constexpr std::size_t kCodeDigits = 64;

// Where the code of a text begins, mark included; the size of the text if it has none.
std::size_t code_begin(std::string_view text) {
  constexpr std::size_t kSize = kCodeMark.size() + kCodeDigits;
  if (text.size() < kSize) return text.size();
  const auto code = text.substr(text.size() - kSize);
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!code.starts_with(kCodeMark) || !std::ranges::all_of(code.substr(kCodeMark.size()), is_digit))
    return text.size();
  return text.size() - kSize;
}

}  // namespace

Signer::Signer(std::string_view secret, bool accept_unsigned) : accept_unsigned_(accept_unsigned) {
  if (!secret.empty()) key_ = auth::derived_key(secret, "values in etcd");
}

std::string Signer::code_of(const KeyValue& write, std::string_view value) const {
  const auto created = std::to_string(write.version == 1 ? 0 : write.create_revision);
  const auto version = std::to_string(write.version);
  return auth::to_hex(
      auth::view(auth::hmac(auth::view(*key_), {write.key, created, version, value})));
}

std::string Signer::sign(const KeyValue& write) const {
  if (!key_) return write.value;
  return fmt::format("{}{}{}", write.value, kCodeMark, code_of(write, write.value));
}

Signer::Checked Signer::check(const KeyValue& read) const {
  const std::string_view text = read.value;
  const auto begin = code_begin(text);
  if (begin == text.size()) {
    if (key_ && !accept_unsigned_) return {.verdict = Verdict::no_code, .value = {}};
    return {.verdict = Verdict::accepted, .value = read.value};
  }
  if (!key_) return {.verdict = Verdict::no_secret, .value = {}};
  const auto value = text.substr(0, begin);
  const auto code = text.substr(begin + kCodeMark.size());
  if (!auth::equal(code, code_of(read, value)))
    return {.verdict = Verdict::wrong_code, .value = {}};
  return {.verdict = Verdict::accepted, .value = std::string(value)};
}

std::string rejection_text(std::string_view key, Signer::Verdict verdict) {
  const auto name = shown(key, 300);
  switch (verdict) {
    case Signer::Verdict::accepted:
      return {};
    case Signer::Verdict::no_code:
      return fmt::format(
          "the value of the etcd key {} is ignored: it has no authentication code, so a process "
          "without the job's secret wrote it; delete it with etcdctl del {}, or, to continue a job "
          "of an older mgpu-run, set --rdzv-conf accept_unsigned_state=true",
          name, name);
    case Signer::Verdict::wrong_code:
      return fmt::format(
          "the value of the etcd key {} is ignored: its authentication code is wrong, so a process "
          "with another secret wrote it, or an old value was put back; give all nodes the same "
          "secret, or delete it with etcdctl del {}",
          name, name);
    case Signer::Verdict::no_secret:
      return fmt::format(
          "the value of the etcd key {} is ignored: this node has no secret to check its "
          "authentication code; give this node the job's secret with --rdzv-token-file FILE or "
          "MGPU_RDZV_TOKEN, or delete it with etcdctl del {}",
          name, name);
  }
  return {};
}

}  // namespace mgpu::rendezvous::etcd
