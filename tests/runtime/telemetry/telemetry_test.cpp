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

// A folder, and a file that stands for stdout.
struct Place {
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

TEST_CASE("a run is told in a file line by line, and ends with its files", "[telemetry]") {
  Place place;
  {
    Telemetry telemetry(place.options());
    telemetry.note("8 = 2 x 4");
    telemetry.step(report_at(10));
    telemetry.evaluation(10, 0.1, {{"loss", 1.5}});
    telemetry.step(report_at(20));
    telemetry.finish({.step = 20, .epoch = 0.2, .train_loss = 0.15, .train_runtime = 4});
    CHECK(telemetry.history().entries().size() == 4);
  }
  const auto shown = place.shown();
  CHECK_THAT(shown, Contains("8 = 2 x 4\nstep 10/400 2%  epoch 0.10  loss 0.2000  "));
  CHECK_THAT(shown, Contains("\nevaluation at step 10:  loss 1.5\nstep 20/400 5%"));
  CHECK_THAT(shown, Contains("\n***** train metrics *****\n"));
  CHECK_THAT(shown, !Contains("\033"));
  CHECK_THAT(shown, !Contains("\r"));
  const auto lines = json_lines(place.file("metrics.jsonl"));
  REQUIRE(lines.size() == 5);
  const std::vector<std::string> events{"note", "train", "eval", "train", "summary"};
  for (std::size_t i = 0; i < 5; ++i) CHECK(lines[i]["event"] == events[i]);
  CHECK(lines[2]["eval_loss"] == 1.5);
  CHECK(fs::exists(place.file("training_loss.svg")));
  CHECK(fs::exists(place.file("train_results.json")));
  CHECK_FALSE(fs::exists(place.file("runs")));
  CHECK_FALSE(fs::exists(place.file("wandb-history.jsonl")));
}

TEST_CASE("on a terminal one line is drawn again and what stays goes above it", "[telemetry]") {
  Place place;
  auto options = place.options();
  options.terminal = true;
  options.width = 50;
  {
    Telemetry telemetry(options);
    telemetry.step(report_at(10));
    telemetry.note("a\033[2Jb");
    telemetry.step(report_at(20));
  }
  const std::string first = "step 10/400 2%  loss 0.2000  eta 1m18s";
  CHECK(place.shown() == "\r\033[K" + first + "\r\033[Ka [2Jb\n" + first +
                             "\r\033[Kstep 20/400 5%  loss 0.1000  eta 1m16s\n");
}

TEST_CASE("only rank 0 shows and writes anything", "[telemetry]") {
  Place place;
  auto options = place.options({"tensorboard", "wandb"});
  options.rank = 1;
  Telemetry telemetry(options);
  telemetry.step(report_at(10));
  telemetry.evaluation(10, 0.1, {{"loss", 1}});
  telemetry.note("hello");
  telemetry.finish({});
  CHECK(place.shown().empty());
  CHECK_FALSE(fs::exists(place.dir.path("out")));
  CHECK(telemetry.history().entries().empty());
}

TEST_CASE("a resumed run goes on in the files and drops what is trained again", "[telemetry]") {
  Place place;
  {
    Telemetry telemetry(place.options({"tensorboard", "wandb"}));
    for (const int step : {10, 20, 30}) telemetry.step(report_at(step));
  }
  const auto program = read_text(place.file("wandb-sync.py"));
  auto options = place.options({"tensorboard", "wandb"});
  options.resume_step = 20;
  {
    Telemetry telemetry(options);
    CHECK(telemetry.history().series("loss").size() == 2);
    telemetry.step(report_at(30));
    CHECK(telemetry.history().series("loss").size() == 3);
  }
  const auto lines = json_lines(place.file("metrics.jsonl"));
  REQUIRE(lines.size() == 4);
  CHECK(lines[1]["step"] == 20);
  CHECK(lines[2]["event"] == "resume");
  CHECK(lines[2]["dropped_lines"] == 1);
  CHECK(lines[3]["step"] == 30);
  const auto wandb = json_lines(place.file("wandb-history.jsonl"));
  REQUIRE(wandb.size() == 3);
  CHECK(wandb[2]["_step"] == 30);
  CHECK(read_text(place.file("wandb-sync.py")) == program);
  CHECK(std::distance(fs::directory_iterator(place.file("runs")), {}) == 1);
}

TEST_CASE("a resumed run takes the checkpoint's history", "[telemetry]") {
  Place place;
  auto options = place.options();
  options.resume_step = 20;
  options.log_history = R"([{"step": 5, "loss": 3}, {"step": 25, "loss": 2}])";
  CHECK(Telemetry(options).history().series("loss") ==
        std::vector<std::pair<double, double>>{{5, 3}});
  options.log_history = "{";
  CHECK(Telemetry(options).history().entries().empty());
  CHECK_THAT(place.shown(), Contains("telemetry: log_history of trainer_state.json is not"));
}

TEST_CASE("a new run keeps an earlier one's metrics", "[telemetry]") {
  Place place;
  {
    Telemetry(place.options()).step(report_at(10));
  }
  {
    Telemetry(place.options()).step(report_at(20));
  }
  CHECK(json_lines(place.file("metrics.jsonl.1"))[0]["step"] == 10);
  CHECK(json_lines(place.file("metrics.jsonl"))[0]["step"] == 20);
  CHECK_THAT(place.shown(), Contains("the metrics of an earlier run are in "));
}

TEST_CASE("training does not die of a folder that cannot be made", "[telemetry]") {
  Place place;
  auto options = place.options({"tensorboard", "wandb"});
  write_text(place.dir.path("out"), "a file");
  Telemetry telemetry(options);
  telemetry.step(report_at(10));
  telemetry.step(report_at(20));
  telemetry.finish({});
  const auto shown = place.shown();
  CHECK_THAT(shown, Contains("telemetry: cannot make the folder"));
  CHECK_THAT(shown, Contains("step 20/400"));
  const auto first = shown.find("metrics.jsonl");
  CHECK(first != shown.npos);
  CHECK(shown.find("metrics.jsonl", first + 1) == shown.npos);
}

TEST_CASE("training does not die of a full disk, which is told once", "[telemetry]") {
  Place place;
  fs::create_directory(place.dir.path("out"));
  fs::create_symlink("/dev/full", place.file("metrics.jsonl"));
  Telemetry telemetry(place.options());
  for (const int step : {10, 20, 30}) telemetry.step(report_at(step));
  const auto shown = place.shown();
  CHECK_THAT(shown, Contains("step 30/400"));
  const auto first = shown.find("No space left on device");
  CHECK(first != shown.npos);
  CHECK(shown.find("No space left on device", first + 1) == shown.npos);
}

TEST_CASE("wandb gets a file and the words how to send it", "[telemetry]") {
  Place place;
  Telemetry telemetry(place.options({"wandb"}));
  telemetry.step(report_at(10));
  CHECK_THAT(place.shown(), Contains("python " + place.file("wandb-sync.py") + "\n"));
  CHECK(json_lines(place.file("wandb-history.jsonl"))[0]["train/loss"] == 0.2);
  CHECK_THAT(read_text(place.file("wandb-sync.py")), Contains("name=\"test\""));
}

TEST_CASE("TensorBoard's folder is the one that was asked for", "[telemetry]") {
  Place place;
  auto options = place.options({"tensorboard"});
  SECTION("by run name") {
    options.run_name = "../a";
    Telemetry telemetry(options);
    CHECK(fs::exists(place.file("runs/.._a")));
  }
  SECTION("by logging_dir") {
    options.logging_dir = place.dir.path("tb");
    Telemetry telemetry(options);
    CHECK(std::distance(fs::directory_iterator(place.dir.path("tb")), {}) == 1);
  }
}
