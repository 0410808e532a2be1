#include "runtime/telemetry/summary.hpp"

#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

Summary sample_summary() {
  return {.step = 400,
          .epoch = 1,
          .train_loss = 0.73456,
          .train_runtime = 133.42,
          .samples = 25600,
          .steps = 400,
          .tokens = 1'000'000,
          .label_tokens = 600'000,
          .total_flos = 5.34e15,
          .peak_tflops_per_gpu = 100,
          .flops = 5.34e15,
          .world = 2,
          .peak_memory_by_gpu = {{0, 10ll << 30}},
          .planned_memory_bytes = 11ll << 30};
}

}  // namespace

TEST_CASE("the summary is a table with transformers' names", "[summary]") {
  CHECK(summary_text(sample_summary()) ==
        "***** train metrics *****\n"
        "  epoch                         =          1\n"
        "  peak_memory_bytes             =  10.00 GiB\n"
        "  planned_memory_bytes          =  11.00 GiB\n"
        "  total_flos                    = 5.34 PFLOP\n"
        "  train_label_tokens_per_second =  4497.0770\n"
        "  train_loss                    =     0.7346\n"
        "  train_mfu                     =     20.0 %\n"
        "  train_runtime                 = 0:02:13.42\n"
        "  train_samples                 =      25600\n"
        "  train_samples_per_second      =   191.8750\n"
        "  train_steps_per_second        =     2.9980\n"
        "  train_tflops_per_gpu          =    20.0120\n"
        "  train_tokens_per_second       =  7495.1280\n"
        "  planned memory differs from the measured peak by +10.0 %\n");
}

TEST_CASE("small values of the summary keep their digits", "[summary]") {
  CHECK_THAT(summary_text({.extra = {{"train_kl", 1.25e-05}}}),
             Contains("train_kl      =  1.250e-05\n"));
}

TEST_CASE("a summary without values has no rates", "[summary]") {
  const auto text = summary_text({});
  CHECK_THAT(text, Contains("train_runtime = 0:00:00.00\n"));
  CHECK_THAT(text, !Contains("per_second"));
  CHECK_THAT(text, !Contains("memory"));
}

TEST_CASE("results are written to transformers' files", "[summary]") {
  TempDir dir(TempDir::in_memory());
  write_text(dir.path("all_results.json"), R"({"predict_loss": 4, "train_loss": 9})");
  const auto on_error = [](const std::string& what) { FAIL(what); };
  write_results(dir.root(), summary_values(sample_summary()), {{"eval_loss", 0.5}}, on_error);
  const auto train = json::parse(read_text(dir.path("train_results.json")));
  CHECK(train["train_runtime"] == 133.42);
  CHECK(train["train_samples_per_second"] == 191.875);
  CHECK(train["train_loss"] == 0.73456);
  CHECK(train["total_flos"] == 5.34e15);
  CHECK_FALSE(train.contains("eval_loss"));
  const auto all = json::parse(read_text(dir.path("all_results.json")));
  CHECK(all["predict_loss"] == 4);
  CHECK(all["train_loss"] == 0.73456);
  CHECK(all["eval_loss"] == 0.5);
}

TEST_CASE("an all_results.json that is not JSON is replaced", "[summary]") {
  TempDir dir(TempDir::in_memory());
  write_text(dir.path("all_results.json"), "{\"half");
  write_results(dir.root(), {{"train_loss", 1}}, {}, [](const std::string& what) { FAIL(what); });
  CHECK(json::parse(read_text(dir.path("all_results.json"))) == json{{"train_loss", 1.0}});
}
