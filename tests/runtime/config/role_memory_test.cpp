#include "runtime/config/planning/role_memory.hpp"

#include "runtime/config/planning/memory_model.hpp"
#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/runtime/config/published_models.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t kGiB = 1 << 30;

RoleRequest request_of(const std::string& keys, std::int64_t ranks, std::int64_t gpu_bytes = 0) {
  RoleRequest request;
  request.model = qwen25_15b();
  request.config = parse_recipe(
      "model_name_or_path: m\ndataset_name: d.jsonl\nreward_funcs: [format]\ndtype: bf16\n"
      "gradient_checkpointing: true\n" +
          keys,
      "f");
  request.config.max_length = 768;
  if (request.config.zero_stage == kAutomaticStage) request.config.zero_stage = ranks > 1 ? 1 : 0;
  request.sizes = plan_generation(request.config, ranks);
  request.roles = plan_roles(request.config, ranks);
  request.gpu_bytes = gpu_bytes;
  return request;
}

const RoleMemory* find(const std::vector<RoleMemory>& roles, std::int64_t gpu,
                       const std::string& role) {
  for (const auto& one : roles)
    if (one.gpu == gpu && one.role == role) return &one;
  return nullptr;
}

std::int64_t model_bytes() {
  return 2 * count_parameters(qwen25_15b(), {}).total;
}

}  // namespace

TEST_CASE("a KV cache has whole pages for every sequence, a shared one each, and one unused page") {
  const auto page = cache_page(qwen25_15b(), 2);
  CHECK(page.bytes == 2 * 28 * 16 * 2 * 128 * 2);
  CHECK(rollout_memory(64, 768, page) == RolloutMemory{64 * 49 + 1, (64 * 49 + 1) * page.bytes});
  CHECK(rollout_memory(1, 1, page).pages == 3);
  CHECK(rollout_memory(1, 17, page).pages == 4);
}

TEST_CASE("sequences_that_fit is the inverse of rollout_memory") {
  const auto page = cache_page(qwen25_15b(), 2);
  for (const std::int64_t sequences : {1, 7, 64, 300})
    for (const std::int64_t longest : {1, 16, 17, 768}) {
      const auto bytes = rollout_memory(sequences, longest, page).bytes;
      CHECK(sequences_that_fit(bytes, longest, page) == sequences);
      CHECK(sequences_that_fit(bytes - 1, longest, page) == sequences - 1);
    }
  CHECK(sequences_that_fit(0, 16, page) == 0);
}

TEST_CASE("a rollout whose completions do not all fit at their maximum length shares the pages") {
  const CachePage page{.tokens = 16, .bytes = 1000};
  const RolloutRequest request{.completions = 2000, .longest = 3200, .logits = 500, .page = page};
  const auto whole = [&](std::int64_t sequences) {
    const auto memory = rollout_memory(sequences, 3200, page);
    return RolloutSize{sequences, memory.pages, memory.bytes + sequences * 500};
  };
  CHECK(rollout_size(request, 0) == whole(256));
  const auto enough = whole(256).bytes;
  CHECK(rollout_size(request, enough) == whole(256));
  const auto less = rollout_size(request, enough - 1);
  CHECK(less.sequences == 1024);
  CHECK(less.bytes < enough);
  CHECK(less.bytes > enough - 1 - page.bytes);
  CHECK(less.bytes == less.pages * page.bytes + less.sequences * 500);
  const auto little = rollout_size(request, whole(10).bytes);
  CHECK(little.sequences == 80);
  CHECK(little.pages == (whole(10).bytes - 80 * 500) / page.bytes);
  CHECK(rollout_size(request, 1) == whole(1));
  SECTION("never more than there are completions") {
    auto few = request;
    few.completions = 12;
    CHECK(rollout_size(few, whole(10).bytes).sequences == 12);
    CHECK(rollout_size(few, whole(12).bytes) == whole(12));
  }
  SECTION("nor so many that their logits take a large part of the memory") {
    auto large = request;
    large.logits = 100 * page.bytes;
    const auto size = rollout_size(large, 10 * 300 * page.bytes);
    CHECK(size.sequences == 9);  // as at their maximum length
  }
}

TEST_CASE("every GPU of the policy has the rollout and a share of the sharded models") {
  auto request = request_of("beta: 0.1\n", 2);
  request.reward_models = {{"rm", qwen25_15b()}};
  const auto roles = role_memory(request);
  for (const std::int64_t gpu : {0, 1}) {
    REQUIRE(find(roles, gpu, "the policy") != nullptr);
    CHECK(find(roles, gpu, "the rollout")->holds == 0);
    CHECK(find(roles, gpu, "the rollout")->at_work > 0);
    CHECK(find(roles, gpu, "the reference")->holds == model_bytes() / 2);
    CHECK(find(roles, gpu, "the reference")->at_work > model_bytes());
    CHECK(find(roles, gpu, "reward rm")->holds == model_bytes() / 2);
    CHECK(held_by_other_roles(roles, gpu) == model_bytes());
  }
  const auto table = role_table(roles);
  CHECK_THAT(table, Contains("reward rm"));
  CHECK_THAT(table, Contains("  0, 1  in total"));
}

TEST_CASE("fp32 logits take 4 more bytes in training and 2 more in the engine") {
  const auto plain = request_of("per_device_train_batch_size: 1\n", 1);
  const auto exact = request_of("per_device_train_batch_size: 1\ncast_lm_head_to_fp32: true\n", 1);
  const auto head = [](const RoleRequest& request) {
    return estimate_memory(request.model, request.config, 1).of(MemoryPart::head);
  };
  CHECK(head(exact) - head(plain) == 768 * 151936 * 4);
  const auto before = role_memory(plain), after = role_memory(exact);
  const auto* rollout = find(after, 0, kRollout);
  REQUIRE(rollout != nullptr);
  CHECK(rollout->at_work - find(before, 0, kRollout)->at_work ==
        rollout->sequences * 3 * 2 * 151936);
}

TEST_CASE("a role with its own GPU is whole there and nowhere else") {
  auto request = request_of("beta: 0.1\npolicy_gpus: [0, 1]\nreference_gpu: 2\nreward_gpu: 1\n", 2);
  request.reward_models = {{"rm", qwen25_15b()}};
  const auto roles = role_memory(request);
  CHECK(find(roles, 0, "the reference") == nullptr);
  CHECK(find(roles, 2, "the reference")->holds == model_bytes());
  CHECK(find(roles, 2, "the policy") == nullptr);
  CHECK(find(roles, 1, "reward rm")->holds == model_bytes());
  CHECK(held_by_other_roles(roles, 0) == 0);
  CHECK(peak_bytes(roles, 2) == model_bytes() + find(roles, 2, "the reference")->at_work);
}

TEST_CASE("an encoder that scores is whole on each GPU that computes it") {
  const auto own_gpu = GENERATE(false, true);
  const std::string keys = own_gpu ? "policy_gpus: [0, 1]\nreward_gpu: 2\n" : "";
  auto request = request_of(keys, 2);
  request.reward_models = {{"rm", {}, {{.weights = 1000, .forward = 50}}}};
  const auto roles = role_memory(request);
  for (const std::int64_t gpu : {0, 1, 2}) {
    const auto* role = find(roles, gpu, "reward rm");
    REQUIRE((role != nullptr) == (own_gpu ? gpu == 2 : gpu < 2));
    if (role == nullptr) continue;
    CHECK(role->holds == 1000);
    CHECK(role->at_work == 50);
  }
}

TEST_CASE("the peak of a GPU is what all roles hold plus the largest active role") {
  const auto roles = role_memory(request_of("beta: 0.1\n", 1));
  std::int64_t holds = 0, most = 0;
  for (const auto& role : roles) {
    holds += role.holds;
    most = std::max(most, role.at_work);
  }
  CHECK(peak_bytes(roles, 0) == holds + most);
}

TEST_CASE("a reference that is the policy without its adapter holds no memory") {
  CHECK(find(role_memory(request_of("beta: 0.1\nlora_r: 8\n", 1)), 0, "the reference")->holds == 0);
  const auto own = role_memory(request_of("beta: 0.1\nlora_r: 8\nreference_gpu: 0\n", 1));
  CHECK(find(own, 0, "the reference")->holds == model_bytes());
  CHECK(find(role_memory(request_of("", 1)), 0, "the reference") == nullptr);
}

TEST_CASE("an error about memory names the role, its need and what to change") {
  const auto lack = [](RoleRequest request) {
    return memory_error(request, role_memory(request)).value_or("");
  };
  CHECK(lack(request_of("beta: 0.1\n", 1)).empty());
  CHECK(lack(request_of("beta: 0.1\n", 1, 80 * kGiB)).empty());

  const auto policy =
      lack(request_of("num_generations: 8\nper_device_train_batch_size: 4\n", 1, 16 * kGiB));
  CHECK_THAT(policy, Contains("GPU 0 has 16.0 GiB, but its roles need "));
  CHECK_THAT(policy, Contains("the largest is the policy with "));
  CHECK_THAT(policy, Contains("try per_device_train_batch_size: 2, use_peft: true"));
  CHECK_THAT(policy, !Contains("guides"));

  auto request = request_of(
      "beta: 0.1\nlora_r: 8\npolicy_gpus: [0]\nreference_gpu: 1\nreward_gpu: 2\n"
      "per_device_train_batch_size: 2\n",
      1, 8 * kGiB);
  CHECK(lack(request).empty());
  request.reward_models = {{"rm", qwen25_15b()}};
  request.reward_models[0].model.layers = 200;
  CHECK_THAT(lack(request), Contains("GPU 2 has 8.0 GiB, but its roles need "));
  CHECK_THAT(lack(request), Contains("the largest is reward rm with "));
  CHECK_THAT(lack(request), Contains("try another reward_gpu, or leave it out to shard the model "
                                     "over all ranks, or a smaller model"));

  request = request_of("lora_r: 8\nper_device_train_batch_size: 16\n", 1, 16 * kGiB);
  request.config.gradient_checkpointing = Recompute::no;
  const auto partly = lack(request);
  CHECK_THAT(partly, Contains("try per_device_train_batch_size: 8, recomputed_layers: "));
  request.config.gradient_checkpointing = Recompute::full;
  const std::string key = "recomputed_layers: ";
  request.config.recomputed_layers = std::stol(partly.substr(partly.find(key) + key.size()));
  CHECK(request.config.recomputed_layers < request.model.layers);
  CHECK(lack(request).empty());
  --request.config.recomputed_layers;
  CHECK_FALSE(lack(request).empty());

  request = request_of("lora_r: 8\nper_device_train_batch_size: 1\nzero_stage: 3\n", 4, 4 * kGiB);
  request.model.layers = 40;
  CHECK_THAT(lack(request), Contains("the largest is the rollout with "));
  CHECK_THAT(lack(request), Contains("try max_completion_length: 256, load_in_4bit: true"));
}

TEST_CASE("the KV cache has as many pages as fit") {
  const auto roles_of = [](const std::string& keys, std::int64_t gpu_bytes) {
    auto request = request_of(
        "lora_r: 8\nnum_generations: 256\nper_device_train_batch_size: 1\n" + keys, 1, gpu_bytes);
    request.config.max_length = 4096;
    auto roles = role_memory(request);
    CHECK_FALSE(memory_error(request, roles));
    return roles;
  };
  constexpr std::int64_t kPagesOfOne = (4096 + kMostBurst) / 16 + 2;
  for (const auto bytes : {std::int64_t{0}, 80 * kGiB}) {
    CHECK(concurrent_sequences(roles_of("", bytes)) == 256);
    CHECK(cache_pages(roles_of("", bytes)) == 256 * kPagesOfOne + 1);
  }
  const auto few = roles_of("", 12 * kGiB);
  CHECK(cache_pages(few) > 10 * kPagesOfOne);
  CHECK(cache_pages(few) < 80 * kPagesOfOne);
  CHECK(concurrent_sequences(few) > 80);  // most become shorter
  CHECK_THAT(find(few, 0, kRollout)->work, Contains("tokens for up to "));
  CHECK(cache_pages(roles_of("beta: 0.1\nreference_gpu: 0\n", 12 * kGiB)) < cache_pages(few));
  const auto server = roles_of("use_vllm: true\nvllm_mode: server\n", 12 * kGiB);
  CHECK(concurrent_sequences(server) == 0);
}

TEST_CASE("an error about memory suggests usual batch sizes if the recipe sets none") {
  const auto error_for = [](std::int64_t ranks, std::int64_t gpu_bytes) {
    auto request = request_of("", ranks, gpu_bytes);
    request.model.layers = 400;
    return memory_error(request, role_memory(request)).value();
  };
  CHECK_THAT(error_for(3, 16 * kGiB),
             Contains("guides recommend for 48 GiB in total "
                      "per_device_train_batch_size: 4, num_generations: 8"));
  CHECK_THAT(error_for(2, 16 * kGiB),
             Contains("per_device_train_batch_size: 2, num_generations: 4"));
  CHECK_THAT(error_for(1, 24 * kGiB),
             Contains("per_device_train_batch_size: 1, num_generations: 2"));
}
