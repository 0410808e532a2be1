// The keys of the data for training and evaluation.

#include <string>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("dataset_name may be a path, a list, or maps with weights", "[recipe]") {
  const auto config = parse_recipe(
      "model: m\ndatasets:\n- a.jsonl\n- {path: b.jsonl, weight: 2}\ndataset_dir: data\n", "f");
  REQUIRE(config.dataset_name.size() == 2);
  CHECK(config.dataset_name[0].path == "data/a.jsonl");
  CHECK(config.dataset_name[1].weight == 2);
  CHECK(with("train_split: 0.95\n").val_set_size == .05);
  CHECK(with("validation_split_ratio: .1\n").val_set_size == .1);
  CHECK_THAT(mistake("train_split: 0.9\nval_set_size: 0.1\n"), Contains("keep one"));
  CHECK(with("packing_strategy: ffd\n").packing_strategy == "bfd");
  CHECK(with("sample_packing_sequentially: true\n").packing_strategy == "sequential");
  CHECK(with("roles_to_train: [assistant]\n").assistant_only_loss);
  CHECK(with("train_sampling_strategy: group_by_length\n").group_by_length);
}

TEST_CASE("a dataset of a hub has a subset, a split and a revision", "[recipe]") {
  const auto of = [](const std::string& dataset) {
    return parse_recipe("model: m\ndatasets: [" + dataset + "]\n", "f").dataset_name.at(0);
  };
  const auto all = of("{path: o/d, name: main, split: test, revision: v2, weight: 2}");
  CHECK(all.path == "o/d");
  CHECK(all.subset == "main");
  CHECK(all.split == "test");
  CHECK(all.revision == "v2");
  CHECK(all.weight == 2);
  CHECK(of("{subset: main, name: o/d}").subset == "main");
  CHECK(of("{name: o/d}").path == "o/d");
  CHECK(of("o/d").split == "train");
  CHECK_FALSE(of("o/d").is_path);
  CHECK(of("{path: o/d, split: 'train[:10%]', max_samples: 5}").split == "train[:10%]");
  CHECK(parse_recipe("model: m\ndataset: d\ndataset_dir: data\n", "f").dataset_name[0].is_path);
}

TEST_CASE("keys choose the hub, or that nothing is downloaded", "[recipe]") {
  CHECK(with("").hub == Hub::automatic);
  CHECK(with("hub: modelscope\n").hub == Hub::modelscope);
  CHECK_FALSE(with("").offline);
  CHECK(with("local_files_only: true\n").offline);
}

TEST_CASE("evaluation requires data, and the best model requires evaluation", "[recipe]") {
  CHECK_THAT(mistake("eval_strategy: steps\n"), Contains("requires evaluation data"));
  CHECK(with("val_set_size: 100\neval_steps: 50\n").eval_strategy == When::steps);
  for (const auto* data : {"val_set_size: 0.05\n", "eval_dataset: e.jsonl\n"}) {
    const std::string lines(data), note = "is not used: set eval_strategy or eval_steps";
    CHECK(noted(with(lines), note));
    CHECK_FALSE(noted(with(lines + "eval_strategy: no\n"), note));
    CHECK_FALSE(noted(with(lines + "eval_steps: 5\n"), note));
  }
  CHECK_THAT(mistake("load_best_model_at_end: true\n"), Contains("requires eval_strategy"));
  CHECK_THAT(mistake("val_set_size: 9\neval_strategy: epoch\nload_best_model_at_end: true\n"),
             Contains("requires equal save_strategy and eval_strategy"));
  CHECK_THAT(
      mistake("val_set_size: 9\neval_steps: 30\nsave_steps: 100\nload_best_model_at_end: true\n"),
      Contains("must be a multiple of eval_steps 30"));
  CHECK_THAT(mistake("early_stopping_patience: 3\n"), Contains("requires eval_strategy"));
  CHECK(with("val_set_size: 9\nevals_per_epoch: 2\nnum_epochs: 5\n").eval_steps == .1);
  CHECK_THAT(mistake("eval_steps: 2.5\n"), Contains("need a whole number of steps"));
}
