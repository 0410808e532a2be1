#include "runtime/telemetry/log_history.hpp"

#include <cmath>

#include "runtime/telemetry/metrics_file.hpp"
#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using nlohmann::json;

namespace {

LogHistory sample_history() {
  LogHistory history;
  history.add({10, 0.5, {{"loss", 1.5}, {"grad_norm", 0.25}, {"learning_rate", 1e-5}}});
  history.add({10, 0.5, {{"eval_loss", 1.25}}});
  history.add({20, 1, {{"loss", kNaN}, {"grad_norm", 0.5}, {"learning_rate", 0}}});
  return history;
}

}  // namespace

TEST_CASE("log_history has transformers' format", "[history]") {
  CHECK(json::parse(sample_history().to_json()) == json::parse(R"([
    {"epoch": 0.5, "grad_norm": 0.25, "learning_rate": 1e-5, "loss": 1.5, "step": 10},
    {"epoch": 0.5, "eval_loss": 1.25, "step": 10},
    {"epoch": 1.0, "grad_norm": 0.5, "learning_rate": 0.0, "loss": null, "step": 20}])"));
}

TEST_CASE("log_history survives writing and reading", "[history]") {
  const auto again = LogHistory::from_json(sample_history().to_json());
  CHECK(again.to_json() == sample_history().to_json());
  CHECK(std::isnan(again.entries()[2].values.at("loss")));
}

TEST_CASE("invalid entries in another program's log_history are skipped", "[history]") {
  const auto history = LogHistory::from_json(
      R"([{"step": 1e300, "loss": 1, "note": "x"}, 7, {"loss": 2, "epoch": 1}])");
  REQUIRE(history.entries().size() == 2);
  CHECK(history.entries()[0].step == 0);
  CHECK(history.entries()[0].values == Values{{"loss", 1}});
  CHECK_THROWS_WITH(LogHistory::from_json("{}"), Catch::Matchers::Contains("must be an array"));
  CHECK_THROWS_WITH(LogHistory::from_json("[1"), Catch::Matchers::Contains("must be an array"));
}

TEST_CASE("a history is cut after the step that a run resumes from", "[history]") {
  auto history = sample_history();
  history.cut(10);
  REQUIRE(history.entries().size() == 2);
  CHECK(history.series("loss") == std::vector<std::pair<double, double>>{{10, 1.5}});
  CHECK(history.series("eval_loss") == std::vector<std::pair<double, double>>{{10, 1.25}});
  CHECK(history.series("nothing").empty());
}

TEST_CASE("without a checkpoint's history, metrics.jsonl is used", "[history]") {
  TempDir dir(TempDir::in_memory());
  auto report = report_at(10);
  report.extra = {{"mean_token_accuracy", 0.75}};
  write_text(dir.path("metrics.jsonl"),
             train_line(report, 1) + note_line(10, "hello", 1) + "no JSON\n" +
                 values_line(event::kEval, 10, 0.1, {{"eval_loss", 3}}, 2) +
                 train_line(report_at(20), 3));
  const auto history = LogHistory::from_metrics(dir.path("metrics.jsonl"), 19);
  CHECK(json::parse(history.to_json()) == json::parse(R"([
    {"epoch": 0.1, "grad_norm": 0.5, "learning_rate": 2e-5, "loss": 0.2,
     "mean_token_accuracy": 0.75, "step": 10},
    {"epoch": 0.1, "eval_loss": 3.0, "step": 10}])"));
  CHECK(LogHistory::from_metrics(dir.path("absent"), 19).entries().empty());
}

TEST_CASE("trainer_state.json has every key of transformers' TrainerState", "[history]") {
  const auto state = json::parse(trainer_state_json({.global_step = 20,
                                                     .max_steps = 40,
                                                     .epoch = 1,
                                                     .num_train_epochs = 2,
                                                     .logging_steps = 10,
                                                     .eval_steps = 0.5,
                                                     .save_steps = 500,
                                                     .train_batch_size = 8,
                                                     .best_metric = 1.25,
                                                     .best_global_step = 10},
                                                    sample_history()));
  CHECK(state["log_history"].size() == 3);
  CHECK(state["logging_steps"].dump() == "10");
  CHECK(state["eval_steps"] == 0.5);
  CHECK(state["best_metric"] == 1.25);
  CHECK(state["best_global_step"] == 10);
  CHECK(state["best_model_checkpoint"].is_null());
  CHECK(state["is_world_process_zero"] == true);
  CHECK(state["num_train_epochs"].dump() == "2");
}
