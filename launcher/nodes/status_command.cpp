#include "launcher/nodes/status_command.hpp"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <vector>

#include "launcher/lifecycle/memory_text.hpp"
#include "launcher/lifecycle/step_times.hpp"
#include "launcher/nodes/credentials.hpp"
#include "launcher/nodes/job_registry.hpp"
#include "launcher/nodes/master_address.hpp"
#include "launcher/options/variables.hpp"
#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/text_table.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "rendezvous/heartbeat.hpp"

namespace mgpu::launcher {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kTimeout = std::chrono::seconds(10);
constexpr int kDefaultPort = 29400;
constexpr const char* kBadAnswer =
    "cannot parse the leader's answer; use the same version of mgpu-run";

struct StatusTarget {
  std::string job;  // empty: any job at that address
  JobAddress at;
  rendezvous::Credentials credentials;
};

// Throws if jobs of this user cannot be found.
void require_registry() {
  const auto folder = registry_folder();
  if (folder.path.empty())
    throw UsageError(
        fmt::format("status: {}; set XDG_RUNTIME_DIR to a folder of yours, for the job too, or "
                    "give the address "
                    "of its leader with --rdzv-endpoint HOST:PORT",
                    folder.problem));
}

StatusTarget find_target(const Options& options) {
  StatusTarget target{.job = options.status_job, .at = {}, .credentials = {}};
  const bool is_address = target.job.find(':') != std::string::npos;
  const std::string endpoint = is_address ? target.job : options.rdzv_endpoint;
  if (is_address) target.job.clear();
  if (const auto noted = find_job(target.job); noted && endpoint.empty()) {
    target.at = *noted;
  } else if (endpoint.empty() && options.master_addr) {
    target.at = {*options.master_addr, options.master_port.value_or(29500)};
  } else if (!endpoint.empty()) {
    const MasterAddress address = split_endpoint(endpoint);
    target.at = {address.host, address.port != 0 ? address.port : kDefaultPort};
  } else {
    require_registry();
    throw UsageError(
        fmt::format("status {}: this user has no such job on this machine; give the "
                    "address of its leader with --rdzv-endpoint HOST:PORT",
                    rendezvous::shown(target.job)));
  }
  const bool has_own_secret = options.insecure || !options.rdzv_token_file.empty() ||
                              own_variable("MGPU_RDZV_TOKEN").has_value();
  if (target.at.secret && !has_own_secret)
    target.credentials.secret = *target.at.secret;
  else
    target.credentials = find_credentials(options, own_variable);
  return target;
}

// One status request over one connection, with one deadline for everything.
class StatusQuery {
 public:
  explicit StatusQuery(StatusTarget target)
      : address_(fmt::format("{}:{}", target.at.host, target.at.port)),
        target_(std::move(target)),
        channel_(target_.credentials, target_.job, "status", address_) {
    channel_.on_ready([this] { advance({}); });
    if (target_.credentials.sealer)
      target_.credentials.sealer->deliver_through(
          [this](std::function<void()> result) { asio::post(io_, std::move(result)); });
  }
  ~StatusQuery() {
    if (target_.credentials.sealer) target_.credentials.sealer->deliver_through(nullptr);
  }
  StatusQuery(const StatusQuery&) = delete;
  StatusQuery& operator=(const StatusQuery&) = delete;

  std::string run() {
    asio::steady_timer deadline(io_, kTimeout);
    deadline.async_wait([this](const auto& cancelled) {
      if (!cancelled) fail("no answer");
    });
    tcp::resolver resolver(io_);
    resolver.async_resolve(target_.at.host, std::to_string(target_.at.port),
                           [this](const auto& failed, const auto& results) {
                             if (failed) return fail(failed.message());
                             connect(results);
                           });
    io_.run();
    if (!problem_.empty())
      throw std::runtime_error(
          fmt::format("status: cannot query the leader at {}: {}", address_, problem_));
    return answer_;
  }

 private:
  void connect(const tcp::resolver::results_type& results) {
    asio::async_connect(stream_, results, [this](const auto& failed, const auto&) {
      if (failed) return fail(failed.message());
      write();
      read();
    });
  }
  void write() {
    error_code failed;
    asio::write(stream_, asio::buffer(channel_.output()), failed);
    channel_.output().clear();
    if (failed) fail(failed.message());
  }
  void read() {
    stream_.async_read_some(asio::buffer(bytes_), [this](const auto& failed, std::size_t got) {
      if (failed) return fail("it closed the connection; is it mgpu-run?");
      advance({bytes_.data(), got});
      if (!io_.stopped()) read();
    });
  }
  void advance(std::string_view bytes) {
    try {
      handle_bytes(bytes);
    } catch (const std::exception& problem) {
      fail(problem.what());
    }
  }
  void handle_bytes(std::string_view bytes) {
    std::vector<rendezvous::AuthenticatedChannel::Received> received;
    const bool was_open = channel_.is_open();
    channel_.receive(bytes, received);
    if (channel_.is_open() && !was_open) channel_.send(rendezvous::StatusRequest{});
    for (const auto& item : received) {
      const auto* message = std::get_if<rendezvous::Message>(&item);
      if (!message) continue;
      if (const auto* refusal = std::get_if<rendezvous::Refusal>(message)) fail(refusal->why);
      if (const auto* answer = std::get_if<rendezvous::StatusReply>(message)) {
        answer_ = answer->text;
        io_.stop();
      }
    }
    if (!io_.stopped()) write();
  }
  void fail(const std::string& why) {
    if (problem_.empty()) problem_ = why;
    io_.stop();
  }

  using error_code = boost::system::error_code;

  std::string address_;
  StatusTarget target_;
  rendezvous::AgentChannel channel_;
  asio::io_context io_{1};
  tcp::socket stream_{io_};
  std::array<char, 64 << 10> bytes_{};
  std::string answer_, problem_;
};

std::string duration_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string ranks_text(const nlohmann::json& ranks) {
  if (ranks.empty()) return "-";
  const int first = ranks.front(), last = ranks.back();
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

// Progress can renew restarts; then there can be more than the limit.
std::string restarts_text(const nlohmann::json& status) {
  const int restarts = status.at("restarts");
  if (status.value("renewed_by_progress", false)) return std::to_string(restarts);
  return fmt::format("{} of {}", restarts, status.at("max_restarts").get<int>());
}

std::string milliseconds_text(const nlohmann::json& rank, const char* name) {
  return rank.contains(name) ? fmt::format("{:.0f} ms", rank.at(name).get<double>()) : "-";
}

std::vector<std::string> progress_row(const nlohmann::json& rank) {
  return {std::to_string(rank.at("rank").get<int>()),
          rank.contains("step") ? std::to_string(rank.at("step").get<std::int64_t>()) : "-",
          rank.at("phase").get<std::string>(),
          milliseconds_text(rank, "step_ms"),
          milliseconds_text(rank, "busy_ms"),
          rank.contains("skew") ? fmt::format("{:.2f}", rank.at("skew").get<double>()) : "-"};
}

// Which rank is a straggler, and what it costs. Empty: it is none.
std::string straggler_text(const nlohmann::json& rank, const std::string& host) {
  const double skew = rank.value("skew", 0.0), busy_ms = rank.value("busy_ms", 0.0);
  if (!rank.value("straggler", false) || skew <= 0) return {};
  return straggler_line({rank.at("rank").get<int>(), busy_ms, busy_ms / skew}, host) + "\n";
}

// Empty if no rank reports its progress.
std::string progress_table(const nlohmann::json& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "step", "phase", "step time", "own work", "skew"}};
  std::string stragglers;
  const auto add_host = [&](const std::string& host) {
    if (nodes.size() > 1) rows.back().insert(rows.back().begin() + 1, host);
  };
  add_host("host");
  for (const auto& node : nodes)
    for (const auto& rank : node.value("progress", nlohmann::json::array())) {
      const std::string host = node.at("host");
      rows.push_back(progress_row(rank));
      add_host(host);
      stragglers += straggler_text(rank, host);
    }
  return rows.size() > 1 ? rendezvous::text_table(rows) + stragglers : std::string();
}

std::string part_text(const nlohmann::json& part) {
  return share_text(part.at("used").get<std::uint64_t>(), part.at("total").get<std::uint64_t>());
}

// A single-node job has this from one second after the start of its ranks on.
std::string memory_lines(const nlohmann::json& memory) {
  std::string text = fmt::format("host memory: {}\n", part_text(memory.at("host")));
  for (const auto& rank : memory.at("ranks")) {
    text += fmt::format("rank {}: {}", rank.at("rank").get<int>(),
                        size_text(rank.at("bytes").get<std::uint64_t>()));
    if (const auto children = rank.at("children_bytes").get<std::uint64_t>(); children != 0)
      text += fmt::format(", its children {}", size_text(children));
    text += '\n';
  }
  for (const auto& gpu : memory.at("gpus")) {
    text += fmt::format("GPU {}: {}", gpu.at("gpu").get<int>(), part_text(gpu));
    if (const int busy = gpu.at("utilization"); busy >= 0) text += fmt::format(", {} % busy", busy);
    if (const int degrees = gpu.at("temperature"); degrees >= 0)
      text += fmt::format(", {} °C", degrees);
    if (const std::string why = gpu.at("reduced_clock"); !why.empty())
      text += fmt::format(", reduced clock because of {}", why);
    text += '\n';
  }
  return text;
}

std::string table_of(const nlohmann::json& status) {
  std::string text = fmt::format(
      "{} ({}): {} for {}, round {}, {} restarts, led by {}\n", status.at("job").get<std::string>(),
      status.at("target").get<std::string>(), status.at("state").get<std::string>(),
      duration_text(status.at("for_s")), status.at("round").get<int>(), restarts_text(status),
      status.at("leader").get<std::string>());
  if (status.contains("missing"))
    text += fmt::format("waiting: {}\n", status.at("missing").get<std::string>());
  std::vector<std::vector<std::string>> rows = {
      {"node", "host", "state", "for", "ranks", "address"}};
  for (const auto& node : status.at("nodes")) {
    const auto& rank = node.at("node_rank");
    rows.push_back({rank.is_null() ? "-" : std::to_string(rank.get<int>()), node.at("host"),
                    node.at("state"), duration_text(node.at("for_s")), ranks_text(node.at("ranks")),
                    node.at("address")});
  }
  text += rendezvous::text_table(rows) + progress_table(status.at("nodes"));
  for (const auto& node : status.at("nodes"))
    if (node.contains("memory")) text += memory_lines(node.at("memory"));
  return text;
}

}  // namespace

std::string status_text(const std::string& answer) {
  try {
    return rendezvous::printable_output(table_of(rendezvous::parse_untrusted_json(answer)));
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error(kBadAnswer);
  }
}

// In ASCII: another node's text cannot control a terminal.
std::string json_text(const std::string& answer) {
  const auto parsed = rendezvous::parse_untrusted_json<nlohmann::ordered_json>(answer);
  if (!parsed.is_object()) throw std::runtime_error(kBadAnswer);
  return parsed.dump(2, ' ', true, nlohmann::json::error_handler_t::replace);
}

namespace {

// A note of a single-node job has points in time, an answer durations.
std::string answer_of_note(const std::string& note) {
  auto status = rendezvous::parse_untrusted_json<nlohmann::ordered_json>(note);
  const auto date = [now = rendezvous::boot_now().count()](nlohmann::ordered_json& object) {
    const auto since = object.value("since", now);
    object.erase("since");
    object["for_s"] = std::chrono::duration<double>(std::chrono::nanoseconds(now - since)).count();
  };
  date(status);
  for (auto& node : status.at("nodes")) date(node);
  return status.dump();
}

bool names_address(const Options& options) {
  return options.status_job.find(':') != std::string::npos || !options.rdzv_endpoint.empty() ||
         options.master_addr;
}

// Nothing if the leader does not answer: the job has probably crashed.
std::optional<std::string> answer_if_any(const Options& options) {
  try {
    return StatusQuery(find_target(options)).run();
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

// Of the job, or of all jobs of this user on this machine if none is named.
std::vector<std::string> answers_of(const Options& options) {
  std::vector<std::string> answers;
  if (!names_address(options))
    for (const auto& note : find_statuses(options.status_job))
      answers.push_back(answer_of_note(note));
  const bool all = options.status_job.empty() && !names_address(options);
  if (!all && answers.empty()) answers.push_back(StatusQuery(find_target(options)).run());
  if (!all) return answers;
  require_registry();
  for (const auto& job : noted_jobs()) {
    Options one = options;
    one.status_job = job;
    if (auto answer = answer_if_any(one)) answers.push_back(std::move(*answer));
  }
  return answers;
}

}  // namespace

int run_status_command(const Options& options, std::ostream& out) {
  const auto answers = answers_of(options);
  const bool one = answers.size() == 1 && !options.status_job.empty();
  if (options.json) {
    std::string text;
    for (const auto& answer : answers) text += (text.empty() ? "" : ",\n") + json_text(answer);
    out << (one ? text : "[" + text + "]") << '\n';
    return 0;
  }
  if (answers.empty()) out << "no job of this user is running on this machine\n";
  for (const auto& answer : answers) out << status_text(answer);
  return 0;
}

}  // namespace mgpu::launcher
