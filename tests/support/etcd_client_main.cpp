// Campaigns, saves and queries etcd as lines on its stdin command, and prints all events as
// lines of JSON. Usage: etcd_client KEY=VALUE...; see settings_of() for the keys.

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <exception>
#include <istream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/election.hpp"

namespace {

namespace asio = boost::asio;
namespace etcd = mgpu::rendezvous::etcd;
using nlohmann::json;
using Options = std::map<std::string, std::string>;

double seconds(mgpu::rendezvous::BootClock::time_point when) {
  return std::chrono::duration<double>(when.time_since_epoch()).count();
}

void say(json line) {
  line["at"] = seconds(mgpu::rendezvous::BootClock::now());
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

etcd::Election::Settings settings_of(Options options) {
  etcd::Election::Settings settings{
      .access = {.endpoints = etcd::parse_endpoints(options["endpoints"]),
                 .user = options["user"],
                 .password = options["password"],
                 .tls = {.ca = options["ca"],
                         .certificate = options["cert"],
                         .key = options["key"]}},
      .prefix = options.contains("prefix") ? options["prefix"] : "/mgpu-run",
      .job = options["job"],
      .signer = etcd::Signer(options["secret"], options["accept_unsigned"] == "true")};
  if (options.contains("lease")) settings.lease = std::chrono::seconds(std::stoi(options["lease"]));
  if (options.contains("keep"))
    settings.keep_state = std::chrono::seconds(std::stoi(options["keep"]));
  return settings;
}

class Program {
 public:
  Program(asio::io_context& io, const Options& options)
      : io_(io),
        settings_(settings_of(options)),
        client_(io, settings_.access),
        election_(std::make_unique<etcd::Election>(io, settings_)),
        input_(io, ::dup(0)) {
    election_->on_change([](const auto& status) {
      say({{"what", "change"},
           {"us", status.is_leader},
           {"leader", status.leader},
           {"term", status.term},
           {"state", status.state ? json(*status.state) : json()},
           {"leader_rejected", status.leader_rejected},
           {"state_rejected", status.state_rejected},
           {"problem", status.problem},
           {"lasting", status.permanent},
           {"good_until", seconds(status.answered_at)}});
    });
    listen();
  }

 private:
  void listen() {
    asio::async_read_until(input_, lines_, '\n', [this](const auto& error, std::size_t) {
      if (error) return io_.stop();
      std::istream stream(&lines_);
      std::string line;
      std::getline(stream, line);
      obey(line);
      listen();
    });
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb, first, rest;
    words >> verb >> first;
    std::getline(words >> std::ws, rest);
    const auto saved = [](bool good) { say({{"what", "saved"}, {"good", good}}); };
    if (verb == "observe") election_->observe();
    if (verb == "campaign") election_->campaign(first);
    if (verb == "leading") say({{"what", "leading"}, {"good", election_->leading()}});
    if (verb == "save") election_->save(first, saved);
    if (verb == "save_large") election_->save(std::string(std::stoul(first), 'x'), saved);
    if (verb == "save_end")
      election_->save_end(rest, std::chrono::seconds(std::stoi(first)), saved);
    if (verb == "resign") election_->resign([] { say({{"what", "resigned"}}); });
    if (verb == "forget") election_.reset();
    if (verb == "put")
      client_.put(first, rest, 0, kLimit, [](const auto& outcome) {
        say({{"what", "put"}, {"problem", outcome.problem.text}});
      });
    if (verb == "get")
      client_.get(first, kLimit, [](const auto& outcome) {
        const auto& keys = outcome.answer.keys;
        say({{"what", "got"},
             {"problem", outcome.problem.text},
             {"code", outcome.problem.code},
             {"lasting", outcome.problem.permanent},
             {"value", keys.empty() ? json() : json(keys[0].value)},
             {"lease", keys.empty() ? 0 : keys[0].lease}});
      });
    if (verb == "watch")
      watch_ = client_.watch(first, std::stoll(rest),
                             {.on_events =
                                  [](const auto& events) {
                                    for (const auto& event : events)
                                      say({{"what", "event"},
                                           {"removed", event.removed},
                                           {"key", event.key.key},
                                           {"value", event.key.value}});
                                  },
                              .on_lost =
                                  [this](const auto& why) {
                                    say({{"what", "lost"}, {"why", why}});
                                    watch_.reset();
                                  }});
  }

  static constexpr std::chrono::seconds kLimit{5};

  asio::io_context& io_;
  etcd::Election::Settings settings_;
  etcd::Client client_;
  std::unique_ptr<etcd::Election> election_;
  std::unique_ptr<etcd::Watch> watch_;
  asio::posix::stream_descriptor input_;
  asio::streambuf lines_;
};

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    options[option.substr(0, option.find('='))] = option.substr(option.find('=') + 1);
  }
  try {
    asio::io_context io;
    Program program(io, options);
    io.run();
  } catch (const std::exception& error) {
    say({{"what", "error"}, {"problem", error.what()}});
    return 1;
  }
  return 0;
}
