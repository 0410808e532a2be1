#include "runtime/telemetry/metrics_file.hpp"

#include <filesystem>
#include <limits>

#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using nlohmann::json;

TEST_CASE("a line of metrics.jsonl has what was trained, how fast, and counts as whole numbers",
          "[metrics]") {
  auto report = report_at(10);
  report.extra = {{"entropy", 2}, {"loss", 99}};
  const auto line = train_line(report, 1700000000.5);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json::parse(line) == json::parse(R"({
    "event": "train", "step": 10, "time": 1700000000.5, "total_steps": 400, "epoch": 0.1,
    "loss": 0.2, "learning_rate": 2e-05, "grad_norm": 0.5, "comm_share": 0.08,
    "label_tokens": 10000, "label_tokens_per_second": 5000, "memory_bytes": 65498251264,
    "memory_total": 85899345920, "mfu": 0.5, "seconds": 2, "skipped_steps": 0,
    "tflops_per_gpu": 494.5, "tokens": 40000, "tokens_per_second": 20000,
    "tokens_per_second_per_gpu": 10000, "entropy": 2.0})"));
  CHECK(line.find("\"tokens\":40000,") != line.npos);
}

TEST_CASE("unknown values are not in a line", "[metrics]") {
  const auto object = json::parse(train_line({.step = 1, .loss = NAN}, 0));
  CHECK(object["loss"].is_null());
  for (const char* name : {"mfu", "tflops_per_gpu", "tokens_per_second", "memory_bytes",
                           "memory_total", "comm_share", "total_steps", "loss_scale"})
    CHECK_FALSE(object.contains(name));
  CHECK(json::parse(train_line({.step = 1, .loss_scale = 8}, 0))["loss_scale"] == 8);
}

TEST_CASE("text that is not UTF-8 is written as valid JSON", "[metrics]") {
  CHECK(json::parse(note_line(3, "caf\xE9", 0))["text"] == "caf\xEF\xBF\xBD");
}

TEST_CASE("a resumed run keeps the complete lines up to its step", "[metrics]") {
  TempDir dir(TempDir::in_memory());
  const auto path = dir.path("metrics.jsonl");
  const auto kept_of = [&](const std::string& text, std::int64_t step) {
    write_text(path, text);
    const auto kept = lines_to_keep(path, step);
    return std::pair(text.substr(0, static_cast<std::size_t>(kept.bytes)), kept.dropped);
  };
  const std::string one = "{\"step\":1}\n", two = "{\"step\":2}\n", three = "{\"step\":3}\n";
  CHECK(kept_of(one + two + three, 2) == std::pair(one + two, std::int64_t{1}));
  CHECK(kept_of(one + two + three, 3) == std::pair(one + two + three, std::int64_t{0}));
  CHECK(kept_of(one + three + two, 2) == std::pair(one, std::int64_t{2}));
  CHECK(kept_of(one + "{\"step\":2}", 2) == std::pair(one, std::int64_t{1}));
  CHECK(kept_of(one + "{\"st", 2) == std::pair(one, std::int64_t{1}));
  CHECK(kept_of("mine\n[]\n{}\n" + one, 2) == std::pair("mine\n[]\n{}\n" + one, std::int64_t{0}));
  CHECK(kept_of("{\"step\":\"x\"}\n{\"step\":1e400}\n", 2).first ==
        "{\"step\":\"x\"}\n{\"step\":1e400}\n");
  CHECK(kept_of("", 2) == std::pair(std::string(), std::int64_t{0}));
  std::filesystem::remove(path);
  CHECK(lines_to_keep(path, 2).bytes == 0);
}

TEST_CASE("an earlier run's file is renamed to a free name", "[metrics]") {
  TempDir dir(TempDir::in_memory());
  const auto path = dir.path("metrics.jsonl");
  CHECK(set_aside(path).empty());
  write_text(path, "");
  CHECK(set_aside(path).empty());
  write_text(path, "first\n");
  CHECK(set_aside(path) == path + ".1");
  write_text(path, "second\n");
  CHECK(set_aside(path) == path + ".2");
  CHECK(read_text(path + ".1") == "first\n");
  CHECK(read_text(path + ".2") == "second\n");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a line for wandb has wandb's names and only finite numbers", "[metrics]") {
  const auto line = wandb_line(7, 0.5, {{"loss", 2}, {"eval_loss", 3}, {"grad_norm", NAN}}, 12.5);
  CHECK(json::parse(line) == json::parse(R"({"_step": 7, "_timestamp": 12.5, "train/epoch": 0.5,
    "train/global_step": 7, "train/loss": 2.0, "eval/loss": 3.0})"));
}
