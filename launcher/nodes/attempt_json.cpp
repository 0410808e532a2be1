#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

#include "launcher/lifecycle/report.hpp"
#include "launcher/options/options.hpp"
#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;
using rendezvous::read_field;
using rendezvous::write_field;

constexpr std::size_t kMaxTailBytes = 32 << 10;

template <class Visit>
void fields(RankResult& end, Visit&& field) {
  field("rank", end.rank), field("local_rank", end.local_rank), field("pid", end.pid);
  field("code", end.report.code);
  field("core", end.report.core_dumped), field("exec_error", end.report.exec_error);
  field("ours", end.ended_by_us), field("node", end.node_rank), field("host", end.host);
  field("after", end.after_start), field("suspended", end.suspended);
}

template <class Visit>
void fields(AttemptResult& attempt, Visit&& field) {
  field("number", attempt.number), field("started_at", attempt.started_at);
  field("cause", attempt.cause.text), field("advice", attempt.cause.advice);
  field("stderr_tail", attempt.stderr_tail), field("log_dir", attempt.log_dir);
  field("last_step", attempt.last_step), field("signature", attempt.cause.signature);
  field("evidence", attempt.cause.evidence), field("cascade", attempt.cause.cascade);
  field("evidence_folder", attempt.evidence), field("root_rank", attempt.root_rank);
}

// Texts come from another node: each is one printable line, only `stderr_tail` is several.
template <class Value>
void read_printable(const json& object, const char* name, Value& value) {
  read_field(object, name, value);
  if constexpr (std::is_same_v<Value, std::string>)
    value = std::string_view(name) == "stderr_tail" ? rendezvous::printable_output(value)
                                                    : rendezvous::printable(value);
}

template <class Value>
json to_object(Value thing) {
  json object = json::object();
  fields(thing, [&](const char* name, const auto& value) { write_field(object, name, value); });
  return object;
}

json to_object(const RankResult& end) {
  json object = to_object<RankResult>(RankResult(end));
  write_field(object, "signo", end.report.signal.number());
  return object;
}

RankResult read_rank(const json& object) {
  RankResult end;
  fields(end, [&](const char* name, auto& value) { read_printable(object, name, value); });
  int signo = 0;
  read_field(object, "signo", signo);
  end.report.signal = Signal::numbered(signo);
  return end;
}

}  // namespace

std::string attempt_to_json(const AttemptResult& attempt) {
  AttemptResult shortened = attempt;
  if (shortened.stderr_tail.size() > kMaxTailBytes)
    shortened.stderr_tail.erase(0, shortened.stderr_tail.size() - kMaxTailBytes);
  json object = to_object(shortened);
  object["kind"] = std::string(name_of(attempt.cause.kind));
  object["ranks"] = json::array();
  for (const auto& rank : attempt.ranks) object["ranks"].push_back(to_object(rank));
  if (attempt.first_failure) object["first"] = to_object(*attempt.first_failure);
  if (attempt.error_file) object["error_file"] = to_json(*attempt.error_file);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

AttemptResult attempt_from_json(const std::string& text) {
  AttemptResult attempt;
  const json object = rendezvous::parse_untrusted_json(text);
  if (!object.is_object()) return attempt;
  fields(attempt, [&](const char* name, auto& value) { read_printable(object, name, value); });
  std::string word;
  read_field(object, "kind", word);
  attempt.cause.kind = kind_named(word);
  if (const auto ranks = object.find("ranks"); ranks != object.end() && ranks->is_array())
    for (const auto& rank : *ranks)
      if (attempt.ranks.size() < kMostRanks) attempt.ranks.push_back(read_rank(rank));
  if (const auto first = object.find("first"); first != object.end())
    attempt.first_failure = read_rank(*first);
  std::string error_file;
  read_field(object, "error_file", error_file);
  if (!error_file.empty()) attempt.error_file = parse_error_file(error_file);
  return attempt;
}

}  // namespace mgpu::launcher
