#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "runtime/rewards/external_reward.hpp"
#include "runtime/rewards/sandbox.hpp"
#include "runtime/rewards/scoring_pool.hpp"

namespace mgpu::rewards {
namespace {

// The positions of the completions of each group.
std::map<std::size_t, std::vector<std::size_t>> groups_of(
    std::span<const CompletionView> completions) {
  std::map<std::size_t, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < completions.size(); ++i) groups[completions[i].group].push_back(i);
  return groups;
}

class EndpointReward : public Reward {
 public:
  EndpointReward(std::string name, OpenEndpoint open, int concurrency, Distribution distribution,
                 const Settings& settings)
      : name_(std::move(name)),
        limit_(settings.reward_timeout),
        on_error_(settings.reward_on_error),
        pool_(std::move(open), concurrency, distribution) {}

  const std::string& name() const override { return name_; }

  void begin(std::span<const CompletionView> completions) override {
    for (const auto& [group, members] : groups_of(completions)) {
      if (requests_.contains(group)) continue;
      std::vector<const CompletionView*> views;
      for (const auto i : members) views.push_back(&completions[i]);
      requests_[group] =
          pool_.submit(request_line(views), limit_ * static_cast<long>(views.size()));
    }
  }

  void set_deadline(Deadline deadline) override { deadline_ = deadline; }

  std::vector<Score> score(std::span<const CompletionView> completions) override {
    begin(completions);
    std::vector<Score> scores(completions.size());
    try {
      for (const auto& [group, members] : groups_of(completions)) {
        const auto group_scores = scores_of(group, members.size());
        for (std::size_t i = 0; i < members.size(); ++i) scores[members[i]] = group_scores[i];
      }
    } catch (...) {
      give_up();
      throw;
    }
    if (pool_.unanswered() > 0) give_up();
    return scores;
  }

 private:
  std::vector<Score> scores_of(std::size_t group, std::size_t count) {
    try {
      return parse_scores(pool_.wait(requests_.extract(group).mapped(), deadline_), count);
    } catch (const SandboxError& e) {
      throw RewardError(name_, e.what());  // about this machine, not about these completions
    } catch (const rendezvous::InputError& e) {
      report(RewardInputError(name_, e.what()));
    } catch (const ScoringPool::NotInTime&) {
      report(RewardError(
          name_,
          fmt::format("no scores yet for {} of its groups, and the other ranks do not wait any "
                      "longer (ddp_timeout); raise ddp_timeout or reward_concurrency",
                      pool_.unanswered())));
    } catch (const std::runtime_error& e) {
      report(RewardError(name_, e.what()));
    }
    return std::vector<Score>(count);
  }

  void give_up() {
    requests_.clear();
    pool_.cancel();
  }

  // A failure: an exception, or with reward_on_error none a warning, once.
  template <class Error>
  void report(const Error& error) {
    if (on_error_ == OnError::stop) throw error;
    if (!warned_)
      fmt::print(
          stderr,
          "warning: {}; the completions of this group have no score (reward_on_error: none)\n",
          error.what());
    warned_ = true;
  }

  std::string name_;
  std::chrono::milliseconds limit_;
  OnError on_error_;
  Deadline deadline_ = Deadline::max();
  std::map<std::size_t, std::size_t> requests_;  // groups that wait for their scores
  bool warned_ = false;
  ScoringPool pool_;
};

}  // namespace

std::unique_ptr<Reward> make_endpoint_reward(std::string name, OpenEndpoint open, int concurrency,
                                             Distribution distribution, const Settings& settings) {
  return std::make_unique<EndpointReward>(std::move(name), std::move(open), concurrency,
                                          distribution, settings);
}

}  // namespace mgpu::rewards
