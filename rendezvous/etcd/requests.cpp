#include "rendezvous/etcd/requests.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/base/base64.hpp"
#include "rendezvous/http/message.hpp"

namespace mgpu::rendezvous::etcd {
namespace {

using nlohmann::json;

std::string text_of(const json& request) {
  return request.dump(-1, ' ', false, json::error_handler_t::replace);
}

json put_fields(std::string_view key, std::string_view value, std::int64_t lease) {
  json fields{{"key", to_base64(key)}, {"value", to_base64(value)}};
  if (lease != 0) fields["lease"] = std::to_string(lease);
  return fields;
}

json fields_of(const Compare& compare) {
  const bool create = compare.what == Compare::What::create_revision;
  return {{"key", to_base64(compare.key)},
          {"result", "EQUAL"},
          {"target", create ? "CREATE" : "MOD"},
          {create ? "create_revision" : "mod_revision", std::to_string(compare.is)}};
}

json fields_of(const std::vector<Operation>& operations) {
  json list = json::array();
  for (const auto& operation : operations) {
    switch (operation.what) {
      case Operation::What::put:
        list.push_back(
            {{"request_put", put_fields(operation.key, operation.value, operation.lease)}});
        break;
      case Operation::What::range:
        list.push_back({{"request_range", {{"key", to_base64(operation.key)}}}});
        break;
      case Operation::What::remove:
        list.push_back({{"request_delete_range", {{"key", to_base64(operation.key)}}}});
        break;
    }
  }
  return list;
}

}  // namespace

std::string http_post(std::string_view authority, std::string_view path, std::string_view token,
                      std::string_view body) {
  http::Request request{
      .authority = std::string(authority),
      .path = std::string(path),
      .body = std::string(body),
      // A member that has lost the majority then ends a watch instead of keeping it open.
      .fields = {{"Grpc-Metadata-hasleader", "true"}}};
  if (!token.empty()) request.fields.emplace_back("Authorization", token);
  return http::text_of(request);
}

std::string prefix_end(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::string(1, '\0');  // to etcd this means: up to the last key
  end.back() = static_cast<char>(end.back() + 1);
  return end;
}

std::string put_request(std::string_view key, std::string_view value, std::int64_t lease) {
  return text_of(put_fields(key, value, lease));
}

std::string range_request(std::string_view key, std::string_view end, std::int64_t limit) {
  json request{{"key", to_base64(key)}, {"limit", std::to_string(limit)}};
  if (!end.empty()) request["range_end"] = to_base64(end);
  return text_of(request);
}

std::string transaction_request(const Transaction& transaction) {
  json compares = json::array();
  for (const auto& compare : transaction.if_all) compares.push_back(fields_of(compare));
  return text_of({{"compare", std::move(compares)},
                  {"success", fields_of(transaction.then)},
                  {"failure", fields_of(transaction.otherwise)}});
}

std::string grant_request(std::int64_t lease, std::int64_t ttl) {
  return text_of({{"ID", std::to_string(lease)}, {"TTL", std::to_string(ttl)}});
}

std::string lease_request(std::int64_t lease) {
  return text_of({{"ID", std::to_string(lease)}});
}

std::string sign_in_request(std::string_view user, std::string_view password) {
  return text_of({{"name", std::string(user)}, {"password", std::string(password)}});
}

std::string watch_request(std::string_view key, std::string_view end, std::int64_t from_revision) {
  json create{{"key", to_base64(key)}, {"start_revision", std::to_string(from_revision)}};
  if (!end.empty()) create["range_end"] = to_base64(end);
  return text_of({{"create_request", std::move(create)}});
}

}  // namespace mgpu::rendezvous::etcd
