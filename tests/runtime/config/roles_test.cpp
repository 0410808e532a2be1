#include "runtime/config/planning/roles.hpp"

#include <algorithm>

#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;

namespace {

TrainConfig roles_recipe(const std::string& more) {
  return parse_recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\nreward_funcs: [format]\nbeta: 0.1\n" + more,
      "f");
}

std::string roles_refusal(const std::string& keys, std::int64_t ranks, std::int64_t found) {
  try {
    check_gpus(plan_roles(roles_recipe(keys), ranks), found);
  } catch (const RecipeError& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("without keys rank i has GPU i and all ranks share the roles") {
  const auto roles = plan_roles(roles_recipe(""), 3);
  CHECK_FALSE(roles.named);
  CHECK(roles.policy == std::vector<std::int64_t>{0, 1, 2});
  CHECK_FALSE(roles.reference.has_own_gpu());
  CHECK_FALSE(roles.reward.has_own_gpu());
  CHECK(roles_refusal("", 4, 1).empty());
}

TEST_CASE("a role's GPU belongs to the rank that trains on it, else to rank 0") {
  const auto roles =
      plan_roles(roles_recipe("policy_gpus: [3, 1]\nreference_gpu: 1\nreward_gpu: 2\n"), 2);
  CHECK(roles.policy == std::vector<std::int64_t>{3, 1});
  CHECK(roles.reference == Role{1, 1});
  CHECK(roles.reward == Role{2, 0});
  CHECK(plan_roles(roles_recipe("reference_gpu: 2\n"), 3).reference == Role{2, 2});
  CHECK(plan_roles(roles_recipe("policy_gpu_ids: 0, 1\nreward_gpu_id: 1\n"), 2).reward ==
        Role{1, 1});
}

TEST_CASE("a GPU with several roles counts once") {
  CHECK(count_gpus(plan_roles(roles_recipe(""), 3)) == 3);
  CHECK(count_gpus(plan_roles(
            roles_recipe("policy_gpus: [0, 1]\nreference_gpu: 2\nreward_gpu: 2\n"), 2)) == 3);
  CHECK(count_gpus(plan_roles(
            roles_recipe("policy_gpus: [0, 1]\nreference_gpu: 1\nreward_gpu: 2\n"), 2)) == 3);
}

TEST_CASE("the number of ranks must equal the number of policy GPUs") {
  CHECK(roles_refusal("policy_gpus: [0, 1]\n", 3, 8) ==
        "policy_gpus names 2 GPUs, but the job has 3 ranks; start it with --nproc 2");
  CHECK(roles_refusal("policy_gpus: [4]\n", 2, 8) ==
        "policy_gpus names 1 GPU, but the job has 2 ranks; start it with --nproc 1");
  CHECK(intended_ranks(roles_recipe("policy_gpus: [0, 1]\n")) == 2);
  CHECK_THROWS_AS(check_ranks(roles_recipe("policy_gpus: [0, 1]\n"), 1), RecipeError);
}

TEST_CASE("an error about missing GPUs has the needed number, the found number and a fix") {
  const std::string three = "policy_gpus: [0, 1]\nreference_gpu: 2\nreward_gpu: 2\n";
  CHECK(roles_refusal(three, 2, 3).empty());
  CHECK(roles_refusal(three, 2, 2) ==
        "reference_gpu 2 and reward_gpu 2 need 3 GPUs, found 2; set reference_gpu: 1, "
        "reward_gpu: 1");
  CHECK(roles_refusal("reference_gpu: 5\n", 2, 2) ==
        "reference_gpu 5 needs 6 GPUs, found 2; set reference_gpu: 1");
  CHECK(roles_refusal(three, 2, 1) ==
        "policy_gpus [0, 1] and reference_gpu 2 and reward_gpu 2 need 3 GPUs, found 1; set "
        "policy_gpus: [0] with --nproc 1, reference_gpu: 0, reward_gpu: 0");
  CHECK(roles_refusal("policy_gpus: [2, 3]\n", 2, 2) ==
        "policy_gpus [2, 3] need 4 GPUs, found 2; set policy_gpus: [0, 1]");
}

TEST_CASE("reference_gpu without a reference model leaves a note") {
  const auto has_note = [](const TrainConfig& config) {
    return std::any_of(config.notes.begin(), config.notes.end(), [](const std::string& note) {
      return note.find("reference_gpu: has no effect: beta is 0") != note.npos;
    });
  };
  CHECK_FALSE(has_note(roles_recipe("reference_gpu: 1\n")));
  CHECK(
      has_note(parse_recipe("model_name_or_path: m\ndataset_name: d.jsonl\n"
                            "reward_funcs: [format]\nreference_gpu: 1\n",
                            "f")));
}

TEST_CASE("GPU lists are numbers without repetition") {
  for (const char* wrong : {"[0, 0]", "[-1]", "[a]", "[]", "[1.5]", "[2000]", "{a: 1}"})
    CHECK_THROWS_AS(roles_recipe("policy_gpus: " + std::string(wrong) + "\n"), RecipeError);
  CHECK_THROWS_AS(roles_recipe("reward_gpu: -1\n"), RecipeError);
  CHECK(plan_roles(roles_recipe("policy_gpus: null\n"), 2).policy.size() == 2);
}
