#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>

#include "runtime/rewards/external_reward.hpp"
#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using rewards::Distribution;

namespace {

// Lets its requests wait for each other. Its answer is the number in the first completion.
struct Meeting {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<std::string> answered;  // the first completions, in that order
  int opened = 0, now = 0, most = 0;

  void wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop,
            const std::function<bool()>& condition) {
    changed.wait_for(lock, stop, 60s, condition);
  }
};

class Endpoint : public rewards::ScoringEndpoint {
 public:
  using Wait = std::function<bool(const Meeting&, const std::string&)>;

  Endpoint(Meeting& meeting, Wait until) : meeting_(meeting), until_(std::move(until)) {
    const std::scoped_lock lock(meeting.mutex);
    number_ = meeting.opened++;
  }

  std::string request(const std::string& line, rewards::Deadline, std::stop_token stop) override {
    const auto first = json::parse(line)["completions"][0].get<std::string>();
    std::unique_lock lock(meeting_.mutex);
    meeting_.most = std::max(meeting_.most, ++meeting_.now);
    meeting_.changed.notify_all();
    meeting_.wait(lock, stop, [&] { return until_(meeting_, first); });
    --meeting_.now;
    meeting_.answered.push_back(first);
    meeting_.changed.notify_all();
    if (first == "bad") throw std::runtime_error("it failed");
    return json{{"scores", {std::stod(first) + 100 * number_}}}.dump();
  }

 private:
  Meeting& meeting_;
  Wait until_;
  int number_ = 0;
};

std::unique_ptr<rewards::Reward> reward_of(Meeting& meeting, Endpoint::Wait until, int concurrency,
                                           Distribution distribution = Distribution::any_free,
                                           const json& settings = json::object()) {
  return rewards::make_endpoint_reward(
      "r",
      [&meeting, until = std::move(until)] { return std::make_unique<Endpoint>(meeting, until); },
      concurrency, distribution, rewards::read_settings(settings));
}

Batch groups_of(const std::vector<std::string>& texts) {
  Batch batch(texts, {{"prompt", "q"}});
  for (std::size_t i = 0; i < texts.size(); ++i) batch.groups[i] = i;
  return batch;
}

bool at_once(const Meeting&, const std::string&) {
  return true;
}

std::vector<double> modulo_100(const std::vector<Score>& scores) {
  std::vector<double> rest;
  for (const auto& score : scores) rest.push_back(std::fmod(score.value_or(-1), 100));
  return rest;
}

}  // namespace

TEST_CASE("groups are scored at the same time, up to the limit", "[rewards][concurrency]") {
  Meeting meeting;
  const auto reward =
      reward_of(meeting, [](const Meeting& m, const std::string&) { return m.most == 3; }, 3);
  const auto scores = groups_of({"0", "1", "2", "3", "4", "5", "6"}).scored_by(*reward);
  CHECK(modulo_100(scores) == std::vector<double>{0, 1, 2, 3, 4, 5, 6});
  CHECK(meeting.most == 3);
  CHECK(meeting.opened == 3);
}

TEST_CASE("scores do not depend on the order in which groups are answered",
          "[rewards][concurrency]") {
  Meeting meeting;
  const auto last_first = [](const Meeting& m, const std::string& first) {
    return first == std::to_string(3 - m.answered.size());
  };
  const auto reward = reward_of(meeting, last_first, 4);
  CHECK(modulo_100(groups_of({"0", "1", "2", "3"}).scored_by(*reward)) ==
        std::vector<double>{0, 1, 2, 3});
  CHECK(meeting.answered == std::vector<std::string>{"3", "2", "1", "0"});
}

TEST_CASE("programs get their groups in turn, so that a run repeats", "[rewards][concurrency]") {
  Meeting meeting;
  // The first program is slow: it answers when the other one has scored all of its groups.
  const auto until = [](const Meeting& m, const std::string& first) {
    return first != "0" || m.answered.size() == 2;
  };
  const auto reward = reward_of(meeting, until, 2, Distribution::in_turn);
  const auto scores = groups_of({"0", "1", "2", "3"}).scored_by(*reward);
  CHECK(modulo_100(scores) == std::vector<double>{0, 1, 2, 3});
  CHECK(meeting.answered == std::vector<std::string>{"1", "3", "0", "2"});
}

TEST_CASE("a group that was begun is not requested again", "[rewards][concurrency]") {
  Meeting meeting;
  const auto reward = reward_of(meeting, at_once, 1);
  const json row{{"prompt", "q"}};
  const std::vector<rewards::CompletionView> both{{.completion = "7", .row = &row, .group = 0},
                                                  {.completion = "8", .row = &row, .group = 1}};
  for (int step = 0; step < 2; ++step) {
    reward->begin(std::span(both).last(1));
    {
      std::unique_lock lock(meeting.mutex);
      meeting.wait(lock, {}, [&] { return !meeting.answered.empty(); });
      CHECK(meeting.answered == std::vector<std::string>{"8"});
    }
    CHECK(reward->score(both) == std::vector<Score>{7, 8});
    CHECK(meeting.answered == std::vector<std::string>{"8", "7"});
    meeting.answered.clear();
  }
}

TEST_CASE("a reward that hangs fails at the deadline with its name and ends its requests",
          "[rewards][concurrency]") {
  Meeting meeting;
  const auto hangs = [](const Meeting&, const std::string& first) { return first == "1"; };
  const auto batch = groups_of({"0", "1", "2"});
  const auto now = std::chrono::steady_clock::now();
  SECTION("and the run ends") {
    const auto reward = reward_of(meeting, hangs, 3);
    reward->set_deadline(now + 200ms);
    const auto message = message_of([&] { batch.scored_by(*reward); });
    CHECK_THAT(message, Contains("reward r: "));
    CHECK_THAT(message, Contains("no scores yet for 2 of its groups"));
    CHECK_THAT(message, Contains("ddp_timeout"));
    CHECK(message.find('\n') == message.npos);
    CHECK(meeting.now == 0);
  }
  SECTION("and with reward_on_error none only those groups have no scores") {
    const auto reward =
        reward_of(meeting, hangs, 3, Distribution::any_free, {{"reward_on_error", "none"}});
    reward->set_deadline(now + 2s);
    const auto scores = batch.scored_by(*reward);
    CHECK(modulo_100(scores) == std::vector<double>{-1, 1, -1});
    CHECK(meeting.now == 0);
    reward->set_deadline(rewards::Deadline::max());
    CHECK(modulo_100(groups_of({"1"}).scored_by(*reward)) == std::vector<double>{1});
  }
  CHECK(std::chrono::steady_clock::now() - now < 30s);
}

TEST_CASE("the first group that failed is the one that is reported", "[rewards][concurrency]") {
  Meeting meeting;
  const auto reward = reward_of(meeting, at_once, 4);
  CHECK(message_of([&] { groups_of({"0", "bad", "2"}).scored_by(*reward); }) ==
        "reward r: it failed");
  CHECK(modulo_100(groups_of({"5"}).scored_by(*reward)) == std::vector<double>{5});
}

TEST_CASE("reward_concurrency is at least 1 and bounded", "[rewards][concurrency]") {
  CHECK(rewards::read_settings({{"reward_concurrency", 4}}).reward_concurrency == 4);
  CHECK_THAT(message_of([] { rewards::read_settings({{"reward_concurrency", 0}}); }),
             Contains("reward_concurrency: 0 is too small"));
  CHECK_THAT(message_of([] { rewards::read_settings({{"reward_concurrency", 100000}}); }),
             Contains("reward_concurrency: 100000 is too large"));
}
