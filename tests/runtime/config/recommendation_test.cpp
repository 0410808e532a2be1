// MiniOneRec's keys.

#include <algorithm>
#include <string>

#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

constexpr const char* kBase = "model_name_or_path: m\ndataset_name: d.jsonl\nnum_generations: 16\n";

TrainConfig recommender(const std::string& keys) {
  return parse_recipe(kBase + keys, "job.yaml");
}

std::string refusal_of(const std::string& keys) {
  try {
    recommender(keys);
  } catch (const RecipeError& e) {
    return e.what();
  }
  return "accepted";
}

bool has_note(const TrainConfig& config, const std::string& part) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const auto& note) { return note.find(part) != note.npos; });
}

}  // namespace

TEST_CASE("a reward_type names reward functions and the loss of MiniOneRec", "[recommendation]") {
  struct Case {
    const char* type;
    const char* functions;
  };
  const auto [type, functions] = GENERATE(values<Case>({{"rule", "[rule]"},
                                                        {"ranking", "[rule, ndcg_rule]"},
                                                        {"ranking_only", "[ndcg_rule]"},
                                                        {"semantic", "[semantic]"}}));
  const auto config =
      recommender("reward_type: " + std::string(type) + "\ninfo_file: i\nada_path: e.npy\n");
  CHECK(config.task == Task::grpo);
  CHECK(config.grpo.at("reward_funcs") == functions);
  CHECK(config.grpo.at("loss_type") == "grpo");
  CHECK(config.grpo.at("use_bias_correction_kl") == "false");
  CHECK(has_note(config, "job.yaml:4: reward_type: means reward_funcs: "));
}

TEST_CASE("a reward_type keeps the loss that the recipe names", "[recommendation]") {
  const auto config =
      recommender("reward_type: rule\nloss_type: dr_grpo\nuse_bias_correction_kl: true\n");
  CHECK(config.grpo.at("loss_type") == "dr_grpo");
  CHECK(config.grpo.at("use_bias_correction_kl") == "true");
}

TEST_CASE("dapo and gspo name losses", "[recommendation]") {
  CHECK(recommender("reward_type: rule\ndapo: True\n").grpo.at("loss_type") == "dapo");
  const auto gspo = recommender("reward_type: rule\ngspo: true\ndapo: False\n");
  CHECK(gspo.grpo.at("loss_type") == "grpo");
  CHECK(gspo.grpo.at("importance_sampling_level") == "sequence");
  CHECK(recommender("reward_type: rule\ndapo: no\ngspo: no\n").grpo.at("loss_type") == "grpo");
}

TEST_CASE("train_batch_size is of one rank in a recipe with a reward_type", "[recommendation]") {
  const std::string sizes = "train_batch_size: 64\ngradient_accumulation_steps: 2\n";
  const auto config = recommender("reward_type: rule\n" + sizes);
  CHECK(config.per_device_train_batch_size == 64);
  CHECK(has_note(config, "job.yaml:5: train_batch_size: means per_device_train_batch_size"));
  CHECK(plan_generation(config, 8).step == 1024);
  CHECK(recommender("reward_funcs: rule\ntrain_batch_size: 64\n").global_batch_size == 64);
}

TEST_CASE("MiniOneRec's keys that make rows are noted", "[recommendation]") {
  const auto config = recommender(
      "reward_type: rule\ncategory: Books\nitem_meta_path: i.json\nsid_index_path: s.json\n"
      "mask_all_zero: False\n");
  for (const char* key : {"category", "item_meta_path", "sid_index_path"})
    CHECK(has_note(config, std::string(key) + ": has no effect: rows are read as they are"));
  CHECK(!has_note(config, "mask_all_zero"));
  CHECK(has_note(recommender("reward_type: rule\nmask_all_zero: True\n"),
                 "mask_all_zero: has no effect, as in MiniOneRec"));
}

TEST_CASE("MiniOneRec's keys without effect are noted", "[recommendation]") {
  struct Case {
    const char* keys;
    const char* note;
  };
  const auto [keys, note] = GENERATE(values<Case>({
      {"beam_search: True\ndynamic_sampling: True\n", "dynamic_sampling: has no effect"},
      {"beam_search: True\ntop_k: 50\n", "top_k: has no effect on beams"},
      {"test_beam: 50\n", "test_beam: has no effect without test_during_training: true"},
      {"ada_path: e.npy\n", "ada_path: has no effect: no reward is semantic"},
      {"cf_path: c\n", "cf_path: has no effect: reward_type: sasrec is not supported"},
      {"sample_train: True\n", "sample_train: has no effect, as in MiniOneRec"},
      {"eval_file: e.jsonl\ntest_during_training: True\nnum_generations_eval: 4\n",
       "num_generations_eval: has no effect"},
  }));
  CAPTURE(keys);
  CHECK(has_note(recommender("reward_type: rule\n" + std::string(keys)), note));
}

TEST_CASE("contradictions between MiniOneRec's keys are refused", "[recommendation]") {
  struct Case {
    const char* keys;
    const char* message;
  };
  const auto [keys, message] = GENERATE(values<Case>({
      {"reward_type: rule\nreward_funcs: rule\n",
       "job.yaml:4: reward_type: means the same as reward_funcs (job.yaml:5); keep one"},
      {"reward_type: sasrec\n",
       "job.yaml:4: reward_type: sasrec scores with a SASRec model, which is not supported"},
      {"reward_type: ruel\n",
       "job.yaml:4: reward_type: need rule, ranking, ranking_only or semantic"},
      {"reward_type: rule\ndapo: true\ngspo: true\n",
       "job.yaml:6: gspo: contradicts dapo (job.yaml:5); keep one"},
      {"reward_type: rule\ndapo: true\nloss_type: grpo\n",
       "job.yaml:6: loss_type: contradicts dapo (job.yaml:5), which means loss_type: dapo"},
      {"reward_type: semantic\ninfo_file: i\n",
       "job.yaml:4: reward_type: requires ada_path: semantic compares the embeddings in it"},
      {"reward_type: rule\nadd_gt: true\n", "job.yaml:5: add_gt: requires info_file"},
      {"reward_type: rule\nbeam_search: true\nuse_vllm: true\nvllm_mode: server\n",
       "job.yaml:5: beam_search: is not supported with a vLLM server"},
      {"reward_type: rule\ninfo_file: i\nuse_vllm: true\nvllm_mode: server\n",
       "job.yaml:5: info_file: is not supported with a vLLM server"},
      {"reward_type: rule\nbeam_search: true\nuse_vllm: true\nvllm_server_host: h\n",
       "job.yaml:5: beam_search: is not supported with a vLLM server"},
      {"reward_type: rule\ninfo_file: i\nuse_vllm: true\nvllm_server_port: 8000\n",
       "job.yaml:5: info_file: is not supported with a vLLM server"},
      {"reward_type: rule\ninfo_file: i\nuse_vllm: true\nvllm_server_base_url: http://h:1\n",
       "job.yaml:5: info_file: is not supported with a vLLM server"},
      {"reward_type: rule\nbeam_search: true\nrepetition_penalty: 1.2\n",
       "job.yaml:6: repetition_penalty: is not supported with beam_search"},
      {"reward_type: rule\neval_file: e\ntest_during_training: true\nrepetition_penalty: 1.2\n",
       "job.yaml:7: repetition_penalty: is not supported with test_during_training"},
      {"reward_type: rule\ntest_during_training: true\n",
       "job.yaml:5: test_during_training: requires evaluation data"},
      {"reward_type: rule\ntest_during_training: true\nval_set_size: 0\n",
       "job.yaml:5: test_during_training: requires evaluation data"},
      {"reward_type: rule\ntest_during_training: true\neval_dataset: null\n",
       "job.yaml:5: test_during_training: requires evaluation data"},
      {"reward_type: rule\ntest_during_training: true\neval_dataset: []\n",
       "job.yaml:5: test_during_training: requires evaluation data"},
      {"reward_type: rule\ntest_during_training: true\ntrain_split: train\n",
       "job.yaml:5: test_during_training: requires evaluation data"},
      {"reward_type: rule\ntest_during_training: true\ntrain_split: 1.0\n",
       "job.yaml:5: test_during_training: requires evaluation data"},
      {"reward_type: rule\ntest_beam: 0\n", "job.yaml:5: test_beam: need"},
      {"reward_type: rule\ndapo: perhaps\n", "job.yaml:5: dapo: need"},
      {"reward_type: rule\nper_device_train_batch_size: 2\ntrain_batch_size: 4\n",
       "job.yaml:6: train_batch_size: means the same as per_device_train_batch_size"},
  }));
  CAPTURE(keys);
  CHECK_THAT(refusal_of(keys), Contains(message));
}

TEST_CASE("a built-in engine and harmless values leave MiniOneRec's keys as they are",
          "[recommendation]") {
  const auto* keys =
      GENERATE("beam_search: true\nrepetition_penalty: 1.00\n",
               "test_during_training: true\nval_set_size: 0.1\n",
               "test_during_training: true\ntrain_split: 0.9\n", "info_file: i\nuse_vllm: true\n",
               "info_file: i\nvllm_server_host: h\n",
               "info_file: null\nuse_vllm: true\nvllm_server_host: h\n",
               "info_file: i\nuse_vllm: true\nvllm_mode: colocate\n"
               "vllm_server_host: h\n");
  CAPTURE(keys);
  CHECK(refusal_of("reward_type: rule\n" + std::string(keys)) == "accepted");
}
