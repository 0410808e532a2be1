#include "runtime/config/planning/generation_arithmetic.hpp"

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

TrainConfig generation_config(const std::string& lines) {
  return parse_recipe("model_name_or_path: m\ndataset_name: d\ntask: grpo\n" + lines, "f");
}

GenerationSizes sizes(const std::string& lines, std::int64_t ranks) {
  return plan_generation(generation_config(lines), ranks);
}

std::string generation_refusal(const std::string& lines, std::int64_t ranks) {
  try {
    sizes(lines, ranks);
  } catch (const RecipeError& e) {
    return e.what();
  }
  return "";
}

// The notes about a recipe with these lines.
std::string notes(const std::string& lines) {
  std::string all;
  for (const auto& note : generation_config(lines).notes) all += note + "\n";
  return all;
}

}  // namespace

TEST_CASE("the batch size counts completions, one generation per step", "[generation]") {
  const auto got = sizes("per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n", 3);
  CHECK(got.step == 24);
  CHECK(got.generation == 24);
  CHECK(got.prompts() == 3);
  CHECK(got.accumulation() == 2);
  CHECK(got.on_policy());
  CHECK(got.notes.empty());
  CHECK(generation_sentence(got) ==
        "24 completions per step = 4 per device x 3 ranks x 2 accumulation; 24 per generation = "
        "3 prompts x 8");
}

TEST_CASE("without accumulation the smallest one that makes whole groups is used, with a note",
          "[generation]") {
  const auto got = sizes("per_device_train_batch_size: 2\n", 3);
  CHECK(got.step == 24);
  CHECK(got.accumulation() == 4);
  REQUIRE(got.notes.size() == 1);
  CHECK(got.notes[0] ==
        "gradient_accumulation_steps is 4, the smallest number that makes whole groups of 8 with 2 "
        "per "
        "device x 3 ranks");
  CHECK(sizes("", 1).notes.empty());
}

TEST_CASE("accumulation that makes no whole groups is refused with values that work",
          "[generation]") {
  const std::string lines = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 6\n";
  CHECK(generation_refusal(lines, 3) ==
        "2 per device x 3 ranks x 6 accumulation = 36 completions are not whole groups of "
        "num_generations 8; possible gradient_accumulation_steps: 4, 8, 12, 16; possible "
        "num_generations: 4, 6, 9, 12; or leave gradient_accumulation_steps out");
  for (const char* good : {"4", "8", "12", "16"})
    CHECK(sizes(std::string("per_device_train_batch_size: 2\ngradient_accumulation_steps: ") + good,
                3)
              .step > 0);
  for (const char* good : {"4", "6", "9", "12"})
    CHECK(sizes(lines + "num_generations: " + good, 3).step == 36);
}

TEST_CASE("a global batch is met at any number of ranks", "[generation]") {
  const auto ranks = GENERATE(1, 2, 3, 4, 5, 7, 16, 100);
  const auto got = sizes("per_device_train_batch_size: 2\nglobal_batch_size: 16\n", ranks);
  CHECK(got.step == 16);
  CHECK(got.generation == 16);
  CHECK(got.accumulation() * 2 * ranks >= 16);
  CHECK((got.accumulation() - 1) * 2 * ranks < 16);
}

TEST_CASE("unused places are reported", "[generation]") {
  const auto config = generation_config("per_device_train_batch_size: 2\nglobal_batch_size: 16\n");
  CHECK_THAT(generation_sentence(plan_generation(config, 3)),
             Contains("16 completions per step = 2 per device x 3 ranks x 3 accumulation, 2 places "
                      "unused;"));
  CHECK_THAT(
      generation_refusal("global_batch_size: 20\n", 1),
      Contains("not a multiple of num_generations 8; possible global_batch_size: 8, 16, 24, 32; "
               "possible num_generations: 2, 4, 5, 10"));
  CHECK_THAT(generation_refusal("global_batch_size: 16\nper_device_train_batch_size: "
                                "2\ngradient_accumulation_steps: 9\n",
                                3),
             Contains("needs 3 micro-batches of 6 completions, not gradient_accumulation_steps 9"));
}

TEST_CASE("a budget of tokens changes no other size, and has other trainers' names",
          "[generation]") {
  for (const char* name : {"micro_batch_tokens", "ppo_max_token_len_per_gpu"}) {
    const auto got = sizes("per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n" +
                               std::string(name) + ": 9000\nuse_dynamic_bsz: true\n",
                           3);
    CHECK(got.micro_batch_tokens == 9000);
    CHECK(got.step == 24);
    CHECK_THAT(
        generation_sentence(got),
        Contains("x 2 accumulation, computed in micro-batches of up to 9000 tokens; 24 per"));
  }
  const auto mistake = [](const std::string& lines) { return generation_refusal(lines, 1); };
  CHECK_THAT(mistake("micro_batch_tokens: -1\n"), Contains("micro_batch_tokens: need a number"));
  CHECK_THAT(mistake("micro_batch_tokens: 1.5\n"), Contains("micro_batch_tokens: "));
  CHECK_THAT(mistake("use_dynamic_bsz: true\n"),
             Contains("use_dynamic_bsz: requires micro_batch_tokens"));
  CHECK_THAT(mistake("use_dynamic_bsz: false\nmicro_batch_tokens: 5\n"),
             Contains("use_dynamic_bsz: contradicts micro_batch_tokens"));
  // verl's recipes have both.
  CHECK(sizes("use_dynamic_bsz: false\nppo_max_token_len_per_gpu: 16384\n", 1).micro_batch_tokens ==
        0);
  for (const char* loss : {"loss_type: bnpo\n", "top_entropy_quantile: 0.5\n",
                           "loss_normalization: trl\nentropy_coef: 0.1\n"})
    CHECK_THAT(mistake(std::string("micro_batch_tokens: 64\n") + loss),
               Contains("micro_batch_tokens: the loss of this recipe depends on"));
}

TEST_CASE("generations of several steps, and steps of several generations", "[generation]") {
  const auto several = sizes(
      "per_device_train_batch_size: 4\nsteps_per_generation: 4\n"
      "gradient_accumulation_steps: 2\n",
      2);
  CHECK(several.step == 16);
  CHECK(several.generation == 32);
  CHECK_FALSE(several.on_policy());
  const auto merged = sizes(
      "per_device_train_batch_size: 4\nsteps_per_generation: 2\n"
      "gradient_accumulation_steps: 4\n",
      2);
  CHECK(merged.step == 32);
  CHECK(merged.generation == 16);
  CHECK(merged.on_policy());
  CHECK_FALSE(sizes("num_iterations: 2\n", 1).on_policy());
}

TEST_CASE("generation_batch_size works as in TRL, or is one step", "[generation]") {
  const auto trl = sizes("per_device_train_batch_size: 4\ngeneration_batch_size: 32\n", 2);
  CHECK(trl.step == 8);
  CHECK(trl.generation == 32);
  const auto whole = sizes("per_device_train_batch_size: 4\ngeneration_batch_size: 32\n", 3);
  CHECK(whole.step == 32);
  CHECK(whole.accumulation() == 3);
  REQUIRE(whole.notes.size() == 1);
  CHECK_THAT(generation_refusal("generation_batch_size: 12\n", 1),
             Contains("possible generation_batch_size: 8, 16, 24, 32"));
  CHECK_THAT(generation_refusal("per_device_train_batch_size: 3\nsteps_per_generation: 5\n", 1),
             Contains("possible steps_per_generation: 8, 16, 24, 32"));
}

TEST_CASE("contradictory keys of GRPO are refused", "[generation]") {
  const auto mistake = [](const std::string& lines) { return generation_refusal(lines, 1); };
  CHECK(mistake("loss_type: ppo\n") ==
        "f:4: loss_type: need one of grpo, bnpo, dr_grpo, dapo, cispo, sapo, luspo, vespo, not "
        "ppo");
  CHECK_THAT(mistake("loss_type: cispo\n"),
             Contains("f:4: loss_type: cispo requires epsilon_high"));
  CHECK_THAT(mistake("loss_type: cispo\nepsilon_high: 0.28\n"), Contains("f:5: epsilon_high: is"));
  CHECK(mistake("loss_type: cispo\nepsilon_high: 5\n").empty());
  CHECK(mistake("num_generations: 1\n") ==
        "f:4: num_generations: need a number at least 2 and at most 1000000, not 1");
  CHECK_THAT(mistake("sync_ref_model: true\n"), Contains("sync_ref_model: requires beta above 0"));
  CHECK_THAT(mistake("sync_ref_model: true\nbeta: 0.01\n"), !Contains("sync_ref_model"));
  CHECK_THAT(mistake("sync_ref_model: true\nbeta: 0.01\nlora_r: 8\n"),
             Contains("sync_ref_model: with LoRA the reference is the model without the adapter"));
  CHECK_THAT(mistake("target_kl: 0.01\n"), Contains("target_kl: requires beta above 0"));
  CHECK_THAT(mistake("generation_batch_size: 8\nsteps_per_generation: 2\n"),
             Contains("f:5: steps_per_generation: means the same as generation_batch_size"));
  CHECK_THAT(mistake("loss_type: vespo\nvllm_importance_sampling_mode: sequence_mask\n"),
             Contains("requires token_mask or token_truncate"));
  CHECK_THAT(mistake("entropy_coef_min: 2\n"), Contains("entropy_coef_min is above"));
  CHECK_THAT(mistake("scale_rewards: some\n"), Contains("need one of group, batch, none"));
  CHECK(mistake("scale_rewards: false\n").empty());
}

TEST_CASE("a ratio that the loss is not designed for causes a warning", "[generation]") {
  const std::string sequence = "importance_sampling_level: sequence\n";
  for (const char* type : {"bnpo", "dr_grpo", "dapo"})
    CHECK_THAT(notes(sequence + "loss_type: " + type),
               Contains("f:4: importance_sampling_level: warning: with loss_type: "));
  CHECK_THAT(notes(sequence), Contains("warning: with loss_type: dapo"));
  CHECK_THAT(notes(sequence + "loss_type: grpo"), !Contains("warning"));
  CHECK_THAT(notes(sequence + "loss_type: luspo"), !Contains("warning"));
  CHECK_THAT(notes("loss_type: luspo"),
             Contains("designed for importance_sampling_level: sequence"));
  CHECK_THAT(notes(sequence + "loss_type: vespo"), Contains("computes ratios per sequence itself"));
}

TEST_CASE("keys of the generation method that is not used leave a note", "[generation]") {
  const std::string server = "use_vllm: true\nvllm_mode: server\n";
  CHECK(notes(server) == notes(""));
  CHECK(notes(server + "vllm_server_host: h\nvllm_server_port: 80\n") == notes(""));
  CHECK(notes(server + "vllm_structured_outputs_regex: a+\n") == notes(""));
  CHECK(notes(server + "vllm_importance_sampling_clip_max: 2\n") == notes(""));
  CHECK_THAT(notes(server + "vllm_server_base_url: http://h:80\nvllm_server_host: h\n"),
             Contains("f:7: vllm_server_host: has no effect: vllm_server_base_url is the address"));
  for (const char* key : {"vllm_tensor_parallel_size: 2", "vllm_gpu_memory_utilization: .5"})
    CHECK_THAT(notes(server + key), Contains("has no effect: set it when you start the server"));
  CHECK_THAT(notes(server + "vllm_sync_interval: 2\n"),
             Contains("has no effect: weights are sent to the server whenever they have changed"));

  CHECK_THAT(notes("vllm_mode: server\n"),
             Contains("f:4: vllm_mode: has no effect without use_vllm: true"));
  CHECK_THAT(notes("use_vllm: true\n"), Contains("f:4: use_vllm: the built-in engine generates"));
  CHECK_THAT(notes("use_vllm: true\nvllm_mode: colocate\nvllm_server_port: 80\n"),
             Contains("f:6: vllm_server_port: has no effect: the built-in engine generates; set "
                      "vllm_mode: server to use a server"));
  CHECK_THAT(notes("use_vllm: true\nvllm_server_timeout: 9\n"),
             Contains("f:5: vllm_server_timeout: has no effect: the built-in engine generates; set "
                      "vllm_server_host to use a server"));
  CHECK_THAT(notes("vllm_server_port: 80\n"),
             Contains("the built-in engine generates; set use_vllm: true to use a server"));
  CHECK_THAT(notes("vllm_importance_sampling_mode: token_mask\n"),
             Contains("f:4: vllm_importance_sampling_mode: has no effect but on the metric"));
  // With the built-in engine the correction is allowed, but only on request.
  const std::string corrects = "vllm_importance_sampling_correction: true\n";
  CHECK_THAT(notes(corrects + "vllm_importance_sampling_clip_max: 2\n"),
             Contains("vllm_importance_sampling_correction: also corrects for the rounding of the "
                      "built-in engine") &&
                 !Contains("has no effect"));
  CHECK(notes(server + corrects) == notes(server));
  CHECK(notes("vllm_importance_sampling_correction: false\n") == notes(""));
  CHECK_THAT(generation_refusal("vllm_mode: ray\n", 1),
             Contains("need one of colocate, server, not ray"));
  CHECK_THAT(generation_refusal("vllm_server_port: 70000\n", 1),
             Contains("vllm_server_port: need"));
  CHECK_THAT(generation_refusal("use_vllm: true\nvllm_structured_outputs_regex: a+\n", 1),
             Contains("vllm_structured_outputs_regex: is not supported"));
}

TEST_CASE("use_vllm with the address of a server uses the server", "[generation]") {
  const auto config =
      generation_config("use_vllm: true\nvllm_server_host: 127.0.0.1\nvllm_server_port: 8000\n");
  CHECK(GrpoValues(config).uses_server());
  CHECK(config.notes.at(0) ==
        "f:5: vllm_server_host: means vllm_mode: server: the server at this address generates; set "
        "vllm_mode: colocate to generate with the built-in engine");
  const auto uses = [](const std::string& lines) {
    return GrpoValues(generation_config(lines)).uses_server();
  };
  CHECK(uses("use_vllm: true\nvllm_server_port: 8000\n"));
  CHECK(uses("use_vllm: true\nvllm_server_base_url: http://h:80\n"));
  CHECK_FALSE(uses("use_vllm: true\n"));
  CHECK_FALSE(uses("use_vllm: true\nvllm_server_host: null\n"));
  CHECK_FALSE(uses("use_vllm: true\nvllm_mode: colocate\nvllm_server_host: h\n"));
  CHECK_FALSE(uses("use_vllm: false\nvllm_server_host: h\n"));
  CHECK_FALSE(uses("vllm_server_host: h\n"));
}

TEST_CASE("keys without effect leave a note, unless they switch something off", "[generation]") {
  const std::string server = "use_vllm: true\nvllm_mode: server\n";
  CHECK(notes("cast_lm_head_to_fp32: true\n") == notes(""));  // this one has an effect
  for (const char* key :
       {"async_prefetch", "use_transformers_continuous_batching", "log_unique_prompts"})
    for (const auto& before : {std::string(), server}) {
      CHECK_THAT(notes(before + key + ": true\n"), Contains(std::string(key) + ": has no effect"));
      CHECK(notes(before + key + ": false\n") == notes(before));
    }
  CHECK_THAT(notes("ds3_gather_for_generation: false\n"),
             Contains("are always gathered for generation"));
  CHECK(notes("ds3_gather_for_generation: true\n").empty());
  for (const char* key : {"vllm_max_model_length: 2048", "vllm_lora_sync: true"})
    CHECK_THAT(notes(key), Contains("has no effect: the built-in engine generates"));
}

TEST_CASE("task: gspo is GRPO with a ratio per sequence", "[generation]") {
  const auto config = parse_recipe("model_name_or_path: m\ndataset_name: d\ntask: gspo\n", "f");
  CHECK(config.grpo.at("importance_sampling_level") == "sequence");
  CHECK(config.grpo.at("loss_type") == "grpo");
  CHECK(config.notes.at(0) ==
        "f:3: task: means task: grpo with importance_sampling_level: sequence, loss_type: grpo");
  const auto own =
      parse_recipe("model_name_or_path: m\ndataset_name: d\ntask: gspo\nloss_type: luspo\n", "f");
  CHECK(own.grpo.at("loss_type") == "luspo");
}
