#include "runtime/config/command_line.hpp"

#include <algorithm>
#include <fstream>

#include "runtime/config/launch_command.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

Command parsed(std::vector<const char*> words) {
  words.insert(words.begin(), "mgpu-train");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

template <class Wanted>
Wanted as(std::vector<const char*> words) {
  return std::get<Wanted>(parsed(std::move(words)));
}

}  // namespace

TEST_CASE("a file without a command starts training", "[command]") {
  const auto run = as<RunCommand>({"a.yaml", "--set", "lr=1", "--set", "b=2", "--single"});
  CHECK(run.recipe == RecipeArguments{"a.yaml", {"lr=1", "b=2"}, false});
  CHECK(run.single);
  CHECK(as<RunCommand>({"--set", "lr=1", "a.yaml"}).recipe.path == "a.yaml");
  CHECK(as<RunCommand>({"--set=x=[1, 2]", "a.yaml"}).recipe.set.at(0) == "x=[1, 2]");
  CHECK(as<RunCommand>({"--set", "x=-1", "a.yaml"}).recipe.set.at(0) == "x=-1");
  CHECK(as<RunCommand>({"./plan"}).recipe.path == "./plan");
}

TEST_CASE("--set alone is a recipe", "[command]") {
  const RecipeArguments recipe{"", {"lr=1"}, false};
  CHECK(as<RunCommand>({"--set", "lr=1"}).recipe == recipe);
  CHECK(as<CheckCommand>({"check", "--set", "lr=1"}).recipe == recipe);
  CHECK(as<DataCommand>({"data", "--set", "lr=1"}).recipe == recipe);
  CHECK(as<PlanCommand>({"plan", "--set", "lr=1"}).recipe == recipe);
  CHECK_THROWS_WITH(parsed({"plan", "--set", "lr=1", "--model-size", "7B"}),
                    "--set changes a recipe; give FILE.yaml too");
  CHECK_THROWS_WITH(parsed({"plan", "--set", "lr=1", "--write", "a.yaml"}),
                    Contains("--write writes the recipe that --model-size suggests"));
  CHECK(launch_command({recipe}, 4) == "mgpu-run --nproc 4 --set lr=1");
  CHECK(ranks_of_recipe(recipe) == std::nullopt);
}

TEST_CASE("a recipe key that is written as an option names --set", "[command]") {
  CHECK_THROWS_WITH(parsed({"a.yaml", "--batch_size", "4"}),
                    "unknown option --batch_size; to set a key of the recipe write --set "
                    "batch_size=VALUE");
  CHECK_THROWS_WITH(parsed({"a.yaml", "--learning-rate=1"}), Contains("--set learning_rate=VALUE"));
  CHECK_THROWS_WITH(parsed({"a.yaml", "--singel"}), Contains("did you mean --single?"));
}

TEST_CASE("the command for the launcher has every argument of the worker", "[command]") {
  CHECK(launch_command({{"a.yaml", {}, false}}, 4) == "mgpu-run --nproc 4 a.yaml");
  CHECK(launch_command({{"my runs/a.yaml", {"lr=1", "x=[1, 2]", "y=it's"}, true}}, 2) ==
        "mgpu-run --nproc 2 'my runs/a.yaml' --set lr=1 --set 'x=[1, 2]' --set 'y=it'\\''s' "
        "--allow-unknown");
}

TEST_CASE("a recipe for several ranks is recognised by the launcher's keys", "[command]") {
  const TempDir folder;
  const auto ranks = [&](const char* text) {
    std::ofstream(folder.path("a.yaml")) << text;
    return ranks_of_recipe({folder.path("a.yaml"), {}, false});
  };
  CHECK(ranks("num_gpus: 2\n") == 2);
  CHECK(ranks("launch:\n  nproc: 4\n") == 4);
  CHECK(ranks("lr: 2\n") == std::nullopt);
  CHECK(ranks("num_gpus: null\n") == std::nullopt);
  CHECK(ranks("nproc: auto\n") == std::nullopt);
  CHECK(ranks("[1]\n") == std::nullopt);
}

TEST_CASE("a section for the launcher is recognised under its name only", "[command]") {
  const TempDir folder;
  const auto has = [&](const char* text) {
    std::ofstream(folder.path("a.yaml")) << text;
    return has_launch_section({folder.path("a.yaml"), {}, false});
  };
  CHECK(has("lr: 1\nlaunch:\n  nprocs: 4\n"));
  CHECK_FALSE(has("lr: 1\nnum_gpus: 2\n"));
  CHECK_FALSE(has_launch_section({"", {"launch.nproc=2"}, false}));
}

TEST_CASE("launch: in --set does nothing, and a note names that", "[recipe]") {
  const auto noted = [](const std::string& assignment) {
    const auto notes =
        parse_recipe("model: m\ndataset: d\n", "f", RecipeOptions{.set = {assignment}}).notes;
    return notes.size() == 1 && notes[0].find("launch: has no effect") != std::string::npos;
  };
  CHECK(noted("launch.nproc=2"));
  CHECK(noted("launch={nproc: 2}"));
}

TEST_CASE("check is a command and a flag", "[command]") {
  CHECK(as<CheckCommand>({"a.yaml", "--check", "--allow-unknown"}).recipe.allow_unknown);
  CHECK(as<CheckCommand>({"check", "a.yaml", "--gpus", "4"}).ranks == 4);
}

TEST_CASE("a plan is for the visible GPUs or for given ones", "[command]") {
  CHECK(!as<PlanCommand>({"plan", "a.yaml"}).gpu_bytes);
  const auto plan = as<PlanCommand>({"plan", "a.yaml", "--gpu-memory", "32GB", "--gpus", "4"});
  CHECK(plan.gpu_bytes == 32LL << 30);
  CHECK(plan.gpus == 4);
  CHECK_THROWS_WITH(parsed({"plan", "a.yaml", "--gpu-memory", "much"}),
                    "--gpu-memory: need an amount of memory, such as 32GB, not much");
}

TEST_CASE("a plan is for a recipe, for a model size, or for both", "[command]") {
  const auto size = as<PlanCommand>({"plan", "--model-size", "7b", "--write", "x.yaml"});
  CHECK(size.model_size == "7b");
  CHECK(size.output == "x.yaml");
  CHECK(size.recipe.path.empty());
  CHECK(as<PlanCommand>({"plan", "a.yaml", "--model-size", "7B"}).recipe.path == "a.yaml");
  CHECK_THROWS_WITH(parsed({"plan", "--gpus", "2"}),
                    Contains("plan needs FILE.yaml or --model-size"));
  CHECK_THROWS_WITH(parsed({"plan", "--model-size", "9B"}), Contains("--model-size: need one of"));
  CHECK_THROWS_WITH(parsed({"plan", "a.yaml", "--write", "x.yaml"}),
                    Contains("leave out FILE.yaml"));
  CHECK_THROWS_WITH(parsed({"plan", "--model-size", "7B", "--set", "seed=1"}),
                    Contains("--set changes a recipe"));
}

TEST_CASE("the other commands parse their options", "[command]") {
  CHECK(as<InitCommand>({"init", "lora", "-o", "x.yaml"}).output == "x.yaml");
  const auto generate = as<GenerateCommand>(
      {"generate", "--model", "m", "--prompt", "--help", "--temperature", "0", "--top-k", "5"});
  CHECK(generate.prompt == "--help");
  CHECK(generate.temperature == 0);
  CHECK(generate.top_k == 5);
  CHECK(generate.beams == 0);
  CHECK(generate.early_stopping == "no");
  CHECK(as<MergeCommand>({"merge", "--model", "m", "--adapter", "a", "--output", "o"}).output ==
        "o");
  CHECK(as<TokenizeCommand>({"tokenize", "a.yaml"}).recipe.path == "a.yaml");
  const auto train = as<TrainTokenizerCommand>({"train-tokenizer", "a.txt", "b.jsonl", "-o", "out",
                                                "--kind", "characters", "--vocab-size", "99"});
  CHECK(train.files == std::vector<std::string>{"a.txt", "b.jsonl"});
  CHECK(train.output == "out");
  CHECK(train.kind == "characters");
  CHECK(train.vocab_size == 99);
  CHECK(std::holds_alternative<KeysCommand>(parsed({"keys", "--markdown"})));
  CHECK(std::holds_alternative<VersionCommand>(parsed({"--version"})));
  CHECK(std::holds_alternative<VersionCommand>(parsed({"version"})));
  CHECK(std::get<VersionCommand>(parsed({"version", "--worker"})).worker);
  CHECK(std::holds_alternative<HelpCommand>(parsed({"plan", "--help"})));
}

TEST_CASE("a wrong command line is refused with a correction", "[command]") {
  CHECK_THROWS_WITH(parsed({}),
                    "no recipe given; run mgpu-train FILE.yaml, or see mgpu-train --help");
  CHECK_THROWS_WITH(parsed({"a.yaml", "--singel"}),
                    "unknown option --singel; did you mean --single?");
  CHECK_THROWS_WITH(parsed({"a.yaml", "b.yaml"}), Contains("unexpected argument b.yaml"));
  CHECK_THROWS_WITH(parsed({"chek", "a.yaml"}),
                    Contains("unknown command chek; did you mean check?"));
  CHECK_THROWS_WITH(parsed({"quikstart"}), Contains("did you mean quickstart?"));
  CHECK_THROWS_WITH(parsed({"init", "dpo"}),
                    "unknown template dpo; use one of sft, grpo, lora, debug");
  CHECK_THROWS_WITH(parsed({"generate", "--model", "m"}),
                    Contains("need --prompt TEXT or --input"));
  CHECK_THROWS_WITH(parsed({"merge", "--model", "m"}), Contains("--adapter"));
  CHECK(as<QuickstartCommand>({"quickstart"}).folder == "quickstart");
  CHECK(as<QuickstartCommand>({"quickstart", "x"}).folder == "x");
  CHECK(as<QuantizeCommand>({"quantize", "--model", "m", "-o", "o"}).output == "o");
  CHECK_THROWS_WITH(parsed({"quantize", "--model", "m"}), Contains("--output"));
  const auto score = as<ScoreCommand>({"score", "--rewards", "accuracy,format", "rows.jsonl"});
  CHECK(score.rewards == "accuracy,format");
  CHECK(score.input == "rows.jsonl");
  CHECK_THROWS_WITH(parsed({"score", "rows.jsonl"}), Contains("--rewards"));
  CHECK_THROWS_WITH(parsed({"generate", "--model", "m", "--prompt", "x", "--top-p", "2"}),
                    "--top-p: need a number from 0 to 1, not 2; see mgpu-train --help");
  CHECK_THROWS_WITH(parsed({"generate", "--model", "m", "--prompt", "x", "--beams", "0"}),
                    Contains("--beams: need a whole number from 1"));
  CHECK_THROWS_WITH(
      parsed({"generate", "--model", "m", "--prompt", "x", "--early-stopping", "True"}),
      Contains("--early-stopping"));
  CHECK_THROWS_WITH(
      parsed({"generate", "--model", "m", "--prompt", "x", "--beams", "2", "--samples", "3"}),
      "--samples 3 exceeds --beams 2");
  CHECK_THROWS_WITH(parsed({"generate", "--model", "m", "--prompt", "x", "--seed", "x"}),
                    Contains("--seed: need a whole number from 0 to 18446744073709551615, not x"));
  CHECK_THROWS_WITH(parsed({"generate", "--model", "m", "--prompt", "x", "--raw=maybe"}),
                    Contains("--raw maybe: need true or false"));
  CHECK_THROWS_WITH(parsed({"generate", "--model", "m", "--prompt", "x", "--input", "f"}),
                    Contains(" cannot be combined"));
  CHECK_THROWS_WITH(parsed({"merge", "--model", "a", "--model", "b"}),
                    Contains("--model is repeated; give it once"));
  CHECK_THROWS_WITH(parsed({"a.yaml", "--set"}), Contains("--set: needs a value; see"));
  CHECK_THROWS_WITH(parsed({"check", "a.yaml", "--gpus", "0"}),
                    Contains("--gpus: need a whole number from 1 to 65536, not 0"));
  CHECK_THROWS_WITH(parsed({"check"}), Contains("no recipe given; run mgpu-train FILE.yaml"));
  CHECK_THROWS_WITH(parsed({"data"}), Contains("no recipe given; run mgpu-train FILE.yaml"));
}

TEST_CASE("a misspelled option that is required is named, and not only reported as missing",
          "[command]") {
  CHECK_THROWS_WITH(parsed({"generate", "--modle", "m", "--prompt", "x"}),
                    "unknown option --modle; did you mean --model?");
  CHECK_THROWS_WITH(parsed({"generate", "m", "--prompt", "x"}),
                    "unexpected argument m; see mgpu-train --help");
  CHECK_THROWS_WITH(parsed({"merge", "--model", "a", "--adaptor", "b", "--output", "c"}),
                    "unknown option --adaptor; did you mean --adapter?");
  CHECK_THROWS_WITH(parsed({"generate", "--prompt", "x"}), Contains("--model is required"));
}

TEST_CASE("a number of GPUs for training is not answered with --check alone", "[command]") {
  const std::string message =
      "--gpus is for --check; to train on 3 GPUs run mgpu-run --nproc 3 a.yaml";
  CHECK_THROWS_WITH(parsed({"a.yaml", "--gpus", "3"}), message);
  CHECK_THROWS_WITH(parsed({"--nproc", "3", "a.yaml"}), message);
  CHECK_THROWS_WITH(parsed({"--set", "lr=1", "--gpus", "3"}),
                    "--gpus is for --check; to train on 3 GPUs run mgpu-run --nproc 3");
}

TEST_CASE("the help text fits a screen and has every command and option", "[command]") {
  const auto help = help_text();
  CHECK(std::count(help.begin(), help.end(), '\n') <= 40);
  for (const char* word : {"--set",           "--check",      "--single",
                           "--allow-unknown", "--gpu-memory", "--model-size",
                           "--write",         "--gpus",       "--max-new-tokens",
                           "--temperature",   "--top-p",      "--top-k",
                           "--seed",          "--adapter",    "--input",
                           "--prompt",        "--raw",        "--output",
                           "--settings",      "tokenize",     "quantize",
                           "train-tokenizer", "--kind",       "--vocab-size",
                           "--min-frequency", "--text-field", "merge",
                           "score",           "keys",         "version",
                           "quickstart",      "check",        "plan",
                           "--beams",         "--allowed"})
    CHECK_THAT(help, Contains(word));
  CHECK_THAT(version_text(), Contains("mgpu-train "));
}
