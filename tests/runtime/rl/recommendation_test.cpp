#include "runtime/rl/recommendation.hpp"

#include <cmath>
#include <fstream>
#include <string>

#include "runtime/config/resolve.hpp"
#include "runtime/rl/item_metrics.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::rl;
using Catch::Matchers::Contains;

namespace {

// A model that knows the tokens of three items: <a_1><b_1>, <a_1><b_2>, <a_1>.
struct Recommender {
  tests::TempDir dir;
  train::ModelSource source{
      .config = {},
      .tokenizer = text::Tokenizer::load(tests::in_sources("docs/examples/tokenizer"))};

  Recommender() {
    source.tokenizer.add_tokens({"<a_1>", "<b_1>", "<b_2>"}, false);
    source.config.vocab_size = 1000;
    source.config.eos_token_ids = {source.tokenizer.eos_id().value()};
    std::ofstream(dir.path("items.txt")) << "<a_1><b_1>\tt\t0\n<a_1><b_2>\tt\t1\n<a_1>\tt\t2\n";
  }

  Recommendation read(const std::string& keys) const {
    return Recommendation(
        train::parse_recipe("model_name_or_path: m\ndataset_name: d\neval_dataset: e\n"
                            "reward_type: rule\nmax_completion_length: 8\ninfo_file: " +
                                dir.path("items.txt") + "\n" + keys,
                            "job.yaml"),
        source);
  }
  std::string refusal(const std::string& keys) const {
    try {
      read(keys);
    } catch (const train::RecipeError& e) {
      return e.what();
    }
    return "accepted";
  }
  ScoredCompletion completion(const std::string& text) const {
    ScoredCompletion one;
    one.tokens = source.tokenizer.encode(text, false);
    one.tokens.push_back(source.tokenizer.eos_id().value());
    one.sampler_log_probs.assign(one.tokens.size(), -1);
    one.text = text;
    one.terminated = true;
    return one;
  }
};

std::vector<std::string> texts_of(const std::vector<ScoredCompletion>& completions) {
  std::vector<std::string> texts;
  for (const auto& one : completions) texts.push_back(one.text);
  return texts;
}

}  // namespace

TEST_CASE("completions are restricted to the items", "[recommendation]") {
  const Recommender model;
  const auto recommendation = model.read("num_generations: 3\nbeam_search: true\n");
  REQUIRE(recommendation.allowed());
  CHECK(recommendation.allowed()->size() == 3);
  CHECK(recommendation.allowed()->longest() == 4);
  CHECK(recommendation.trains_on_beams());
  CHECK(recommendation.test_beams() == 0);
  CHECK(recommendation.measures());
}

TEST_CASE("more beams than items are refused", "[recommendation]") {
  const Recommender model;
  CHECK_THAT(model.refusal("num_generations: 4\nbeam_search: true\n"),
             Contains("num_generations: 4 beams need as many items, but ") &&
                 Contains("items.txt has 3 with different names"));
  CHECK(model.refusal("num_generations: 4\n") == "accepted");

  SECTION("an evaluation has one beam for each item then") {
    const auto tests =
        model.read("num_generations: 2\ntest_during_training: true\ntest_beam: 50\n");
    CHECK(tests.test_beams() == 3);
    CHECK_THAT(tests.notes().back(), Contains("test_beam: evaluations have 3 beams"));
  }
  SECTION("a catalogue of one item has one beam") {
    std::ofstream(model.dir.path("items.txt")) << "<a_1>\tt\t0\n";
    CHECK_THAT(model.refusal("num_generations: 2\nbeam_search: true\n"),
               Contains("2 beams need as many items, but "));
    CHECK(model.read("num_generations: 2\n").allowed()->size() == 1);
  }
}

TEST_CASE("items that share a name are noted", "[recommendation]") {
  const Recommender model;
  std::ofstream(model.dir.path("items.txt"), std::ios::app) << "<a_1>\tt\t3\n";
  const auto recommendation = model.read("num_generations: 2\n");
  CHECK(recommendation.allowed()->size() == 3);
  CHECK_THAT(recommendation.notes().back(), Contains("1 items have the name of another item"));
}

TEST_CASE("items are the same ones wherever their file is", "[recommendation]") {
  const Recommender model, moved;
  const auto digest = model.read("num_generations: 2\n").digest();
  CHECK(digest.size() == 64);
  CHECK(moved.read("num_generations: 2\n").digest() == digest);
  std::ofstream(moved.dir.path("items.txt")) << "<a_1><b_2>\tt\t1\n<a_1><b_1>\tt\t0\n<a_1>\tt\t2\n";
  CHECK(moved.read("num_generations: 2\n").digest() != digest);
}

TEST_CASE("items that are longer than completions are refused", "[recommendation]") {
  CHECK_THAT(Recommender().refusal("num_generations: 2\nmax_completion_length: 3\n"),
             Contains("max_completion_length"));
}

TEST_CASE("add_gt makes the item to find the last completion of a group", "[recommendation]") {
  const Recommender model;
  const auto recommendation = model.read("num_generations: 2\nadd_gt: true\n");
  std::vector group{model.completion("<a_1>\n"), model.completion("<a_1><b_2>\n")};
  recommendation.form_group(group, {.target = "<a_1><b_1>"}, 2);
  CHECK(texts_of(group) == std::vector<std::string>{"<a_1>\n", "<a_1><b_1>\n"});
  CHECK(group[1].tokens == model.completion("<a_1><b_1>\n").tokens);
  CHECK(std::isnan(group[1].sampler_log_probs.at(3)));
  CHECK(group[1].sampler_log_probs.size() == 4);
  CHECK(!std::isnan(group[0].sampler_log_probs.at(0)));
}

TEST_CASE("dynamic sampling generates half more and makes a varied group", "[recommendation]") {
  const Recommender model;
  const auto recommendation = model.read("num_generations: 2\ndynamic_sampling: true\n");
  CHECK(recommendation.generated(2) == 3);
  std::vector group{model.completion("<a_1>\n"), model.completion("<a_1>\n"),
                    model.completion("<a_1><b_1>\n")};
  recommendation.form_group(group, {.target = "<a_1><b_1>"}, 2);
  CHECK(texts_of(group) == std::vector<std::string>{"<a_1><b_1>\n", "<a_1>\n"});
  CHECK(
      model.read("num_generations: 2\ndynamic_sampling: true\nbeam_search: true\n").generated(2) ==
      2);
}

TEST_CASE("HR@k and NDCG@k are those of MiniOneRec's evaluation", "[recommendation]") {
  const Recommender model;
  const std::vector<Prompt> prompts{{.target = "<a_1><b_2>"}, {.target = "<a_1>"}};
  std::vector<ScoredCompletion> completions;
  for (std::uint32_t prompt = 0; prompt < 2; ++prompt)
    for (const auto* text : {"<a_1><b_1>\n", " \"<a_1><b_2>\"\n", "<a_1><b_1>\n"}) {
      completions.push_back(model.completion(text));
      completions.back().prompt = prompt;
    }
  const auto metrics = item_metrics(completions, prompts, 3, 3);
  CHECK(metrics.at("HR@1") == 0);
  CHECK(metrics.at("HR@3") == .5);  // the second completion of the first prompt
  CHECK(metrics.at("NDCG@3") == Approx(.5 / std::log2(3)));
  CHECK(!metrics.contains("HR@5"));
  CHECK(metrics.at("categorical_diversity") == Approx(2. / 3));

  SECTION("samples have no order") {
    CHECK(!item_metrics(completions, prompts, 3, 0).contains("HR@1"));
  }
  SECTION("an item that add_gt added is no hit") {
    const auto adds = model.read("num_generations: 3\nbeam_search: true\nadd_gt: true\n");
    std::vector group{model.completion("<a_1><b_1>\n"), model.completion("<a_1>\n"),
                      model.completion("<a_1>\n")};
    adds.form_group(group, prompts[0], 3);
    REQUIRE(group[2].text == "<a_1><b_2>\n");
    const auto of_model = item_metrics(group, prompts, 3, adds.found(3));
    CHECK(of_model.at("HR@1") == 0);
    CHECK(!of_model.contains("HR@3"));
    CHECK(adds.found(3) == 2);
    CHECK(model.read("num_generations: 3\n").found(3) == 3);
  }
  SECTION("tokens count once in the diversity of tokens, and the end token never") {
    const std::vector<ScoredCompletion> one{model.completion("<a_1><b_1>\n"),
                                            model.completion("<a_1><b_2>\n")};
    CHECK(item_metrics(one, prompts, 2, 2).at("token_diversity") == Approx(4. / 6));
  }
}

TEST_CASE("the tokenizer's end token ends an item, whatever ends other completions",
          "[recommendation]") {
  Recommender model;
  const auto end = model.source.tokenizer.eos_id().value();
  for (const auto& stops : std::vector<std::vector<std::int32_t>>{{}, {5}, {5, end}}) {
    model.source.config.eos_token_ids = stops;
    CHECK(model.read("num_generations: 2\n").allowed()->end_token() == end);
  }
}
