#include "runtime/telemetry/telemetry.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// A temporary folder, and a file in place of stdout.
struct TelemetryFixture {
  TempDir dir{TempDir::in_memory()};
  mgpu::rendezvous::UniqueFd out{
      ::open(dir.path("stdout").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};

  Options options(std::vector<std::string> report_to = {}) const {
    return {.output_dir = dir.path("out"),
            .run_name = "test",
            .report_to = std::move(report_to),
            .fd = out.get(),
            .clock = [] { return 1700000000.0; }};
  }
  std::string shown() const { return read_text(dir.path("stdout")); }
  std::string file(const std::string& name) const { return dir.path("out/" + name); }
};

}  // namespace

TEST_CASE("the time until the first step is shown with the parts that took long", "[telemetry]") {
  TelemetryFixture fixture;
  {
    Telemetry telemetry(fixture.options());
    telemetry.start(5, {.seconds = 5.94,
                        .parts = {{"libraries", 0, 0.4}, {"recipe", 0.4, 0.44}, {"data", 0.5, 2}}});
  }
  CHECK(fixture.shown() == "first step done 5.9 s after the start: libraries 0.4 s, data 1.5 s\n");
  const auto lines = json_lines(fixture.file("metrics.jsonl"));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["event"] == "start");
  CHECK(lines[0]["step"] == 5);
  CHECK(lines[0]["seconds"] == 5.94);
  CHECK(lines[0]["parts"].size() == 3);
  CHECK(lines[0]["parts"][1]["name"] == "recipe");
  CHECK(lines[0]["parts"][1]["begin"] == 0.4);
}

TEST_CASE("the times of a checkpoint are in metrics.jsonl only", "[telemetry]") {
  TelemetryFixture fixture;
  {
    Telemetry telemetry(fixture.options());
    telemetry.checkpoint(
        {.step = 40, .in_background = true, .stalled_seconds = 0.25, .seconds = 5.5});
  }
  CHECK(fixture.shown().empty());
  const auto lines = json_lines(fixture.file("metrics.jsonl"));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["event"] == "checkpoint");
  CHECK(lines[0]["step"] == 40);
  CHECK(lines[0]["in_background"] == true);
  CHECK(lines[0]["stalled_seconds"] == 0.25);
  CHECK(lines[0]["seconds"] == 5.5);
}

TEST_CASE("a run prints plain lines to a file and writes its result files at the end",
          "[telemetry]") {
  TelemetryFixture fixture;
  {
    Telemetry telemetry(fixture.options());
    telemetry.note("8 = 2 x 4");
    telemetry.step(report_at(10));
    telemetry.evaluation(10, 0.1, {{"loss", 1.5}});
    telemetry.step(report_at(20));
    telemetry.finish({.step = 20, .epoch = 0.2, .train_loss = 0.15, .train_runtime = 4});
    CHECK(telemetry.history().entries().size() == 4);
  }
  const auto shown = fixture.shown();
  CHECK_THAT(shown, Contains("8 = 2 x 4\nstep 10/400 2%  epoch 0.10  loss 0.2000  "));
  CHECK_THAT(shown, Contains("\nevaluation at step 10:  loss 1.5\nstep 20/400 5%"));
  CHECK_THAT(shown, Contains("\n***** train metrics *****\n"));
  CHECK_THAT(shown, !Contains("\033"));
  CHECK_THAT(shown, !Contains("\r"));
  const auto lines = json_lines(fixture.file("metrics.jsonl"));
  REQUIRE(lines.size() == 5);
  const std::vector<std::string> events{"note", "train", "eval", "train", "summary"};
  for (std::size_t i = 0; i < 5; ++i) CHECK(lines[i]["event"] == events[i]);
  CHECK(lines[2]["eval_loss"] == 1.5);
  CHECK(fs::exists(fixture.file("training_loss.svg")));
  CHECK(fs::exists(fixture.file("train_results.json")));
  CHECK_FALSE(fs::exists(fixture.file("runs")));
  CHECK_FALSE(fs::exists(fixture.file("wandb-history.jsonl")));
}

TEST_CASE("on a terminal one line is redrawn and permanent lines appear above it", "[telemetry]") {
  TelemetryFixture fixture;
  auto options = fixture.options();
  options.terminal = true;
  options.width = 50;
  {
    Telemetry telemetry(options);
    telemetry.step(report_at(10));
    telemetry.note("a\033[2Jb");
    telemetry.step(report_at(20));
  }
  const std::string first = "step 10/400 2%  loss 0.2000  eta 1m18s";
  CHECK(fixture.shown() == "\r\033[K" + first + "\r\033[Ka [2Jb\n" + first +
                               "\r\033[Kstep 20/400 5%  loss 0.1000  eta 1m16s\n");
}

TEST_CASE("only rank 0 shows and writes anything", "[telemetry]") {
  TelemetryFixture fixture;
  auto options = fixture.options({"tensorboard", "wandb"});
  options.rank = 1;
  Telemetry telemetry(options);
  telemetry.step(report_at(10));
  telemetry.evaluation(10, 0.1, {{"loss", 1}});
  telemetry.note("hello");
  telemetry.status("{}\n");
  telemetry.finish({});
  CHECK(fixture.shown().empty());
  CHECK_FALSE(fs::exists(fixture.dir.path("out")));
  CHECK(telemetry.history().entries().empty());
}

TEST_CASE("the status is replaced as a whole, and a failure is reported once", "[telemetry]") {
  TelemetryFixture fixture;
  const auto path = fixture.file("training_status.json");
  Telemetry telemetry(fixture.options());
  telemetry.status("{\"step\": 10}\n");
  telemetry.status("{}\n");
  CHECK(read_text(path) == "{}\n");
  fs::remove(path);
  fs::create_directory(path);
  telemetry.status("{}\n");
  telemetry.status("{}\n");
  const auto shown = fixture.shown();
  CHECK(shown.find("training_status.json") != shown.npos);
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 1);
}

TEST_CASE("a resumed run appends to the files and drops the steps that are trained again",
          "[telemetry]") {
  TelemetryFixture fixture;
  {
    Telemetry telemetry(fixture.options({"tensorboard", "wandb"}));
    for (const int step : {10, 20, 30}) telemetry.step(report_at(step));
  }
  const auto program = read_text(fixture.file("wandb-sync.py"));
  auto options = fixture.options({"tensorboard", "wandb"});
  options.resume_step = 20;
  {
    Telemetry telemetry(options);
    CHECK(telemetry.history().series("loss").size() == 2);
    telemetry.step(report_at(30));
    CHECK(telemetry.history().series("loss").size() == 3);
  }
  const auto lines = json_lines(fixture.file("metrics.jsonl"));
  REQUIRE(lines.size() == 4);
  CHECK(lines[1]["step"] == 20);
  CHECK(lines[2]["event"] == "resume");
  CHECK(lines[2]["dropped_lines"] == 1);
  CHECK(lines[3]["step"] == 30);
  const auto wandb = json_lines(fixture.file("wandb-history.jsonl"));
  REQUIRE(wandb.size() == 3);
  CHECK(wandb[2]["_step"] == 30);
  CHECK(read_text(fixture.file("wandb-sync.py")) == program);
  CHECK(std::distance(fs::directory_iterator(fixture.file("runs")), {}) == 1);
}

TEST_CASE("a resumed run uses the checkpoint's history", "[telemetry]") {
  TelemetryFixture fixture;
  auto options = fixture.options();
  options.resume_step = 20;
  options.log_history = R"([{"step": 5, "loss": 3}, {"step": 25, "loss": 2}])";
  CHECK(Telemetry(options).history().series("loss") ==
        std::vector<std::pair<double, double>>{{5, 3}});
  options.log_history = "{";
  CHECK(Telemetry(options).history().entries().empty());
  CHECK_THAT(fixture.shown(), Contains("telemetry: log_history of trainer_state.json must be"));
}

TEST_CASE("a new run keeps an earlier one's metrics", "[telemetry]") {
  TelemetryFixture fixture;
  {
    Telemetry(fixture.options()).step(report_at(10));
  }
  {
    Telemetry(fixture.options()).step(report_at(20));
  }
  CHECK(json_lines(fixture.file("metrics.jsonl.1"))[0]["step"] == 10);
  CHECK(json_lines(fixture.file("metrics.jsonl"))[0]["step"] == 20);
  CHECK_THAT(fixture.shown(), Contains("moved the metrics of an earlier run to "));
}

TEST_CASE("a folder that cannot be created does not stop training", "[telemetry]") {
  TelemetryFixture fixture;
  auto options = fixture.options({"tensorboard", "wandb"});
  write_text(fixture.dir.path("out"), "a file");
  Telemetry telemetry(options);
  telemetry.step(report_at(10));
  telemetry.step(report_at(20));
  telemetry.finish({});
  const auto shown = fixture.shown();
  CHECK_THAT(shown, Contains("telemetry: cannot create the folder"));
  CHECK_THAT(shown, Contains("step 20/400"));
  const auto first = shown.find("metrics.jsonl");
  CHECK(first != shown.npos);
  CHECK(shown.find("metrics.jsonl", first + 1) == shown.npos);
}

TEST_CASE("a full disk does not stop training and is reported once", "[telemetry]") {
  TelemetryFixture fixture;
  fs::create_directory(fixture.dir.path("out"));
  fs::create_symlink("/dev/full", fixture.file("metrics.jsonl"));
  Telemetry telemetry(fixture.options());
  for (const int step : {10, 20, 30}) telemetry.step(report_at(step));
  const auto shown = fixture.shown();
  CHECK_THAT(shown, Contains("step 30/400"));
  const auto first = shown.find("No space left on device");
  CHECK(first != shown.npos);
  CHECK(shown.find("No space left on device", first + 1) == shown.npos);
}

TEST_CASE("with wandb, a file is written and a message explains how to upload it", "[telemetry]") {
  TelemetryFixture fixture;
  Telemetry telemetry(fixture.options({"wandb"}));
  telemetry.step(report_at(10));
  CHECK_THAT(fixture.shown(), Contains("python " + fixture.file("wandb-sync.py") + "\n"));
  CHECK(json_lines(fixture.file("wandb-history.jsonl"))[0]["train/loss"] == 0.2);
  CHECK_THAT(read_text(fixture.file("wandb-sync.py")), Contains("name=\"test\""));
}

TEST_CASE("TensorBoard's folder follows run_name or logging_dir", "[telemetry]") {
  TelemetryFixture fixture;
  auto options = fixture.options({"tensorboard"});
  SECTION("by run name") {
    options.run_name = "../a";
    Telemetry telemetry(options);
    CHECK(fs::exists(fixture.file("runs/.._a")));
  }
  SECTION("by logging_dir") {
    options.logging_dir = fixture.dir.path("tb");
    Telemetry telemetry(options);
    CHECK(std::distance(fs::directory_iterator(fixture.dir.path("tb")), {}) == 1);
  }
}
