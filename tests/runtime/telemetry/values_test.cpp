#include "runtime/telemetry/values.hpp"

#include "runtime/telemetry/peak_flops.hpp"
#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;

TEST_CASE("rates are of all ranks, TFLOP/s of one GPU", "[values]") {
  const auto rates = rates_of(report_at(1));
  CHECK(rates.tokens_per_second == 20000);
  CHECK(rates.label_tokens_per_second == 5000);
  CHECK(rates.tflops_per_gpu == 494.5);
  CHECK(rates.mfu == 0.5);
}

TEST_CASE("a report without a duration has no rates", "[values]") {
  auto report = report_at(1);
  report.seconds = 0;
  CHECK(rates_of(report).tokens_per_second == 0);
  CHECK(rates_of(report).mfu == 0);
  CHECK_FALSE(measured_values(report).contains("tokens_per_second"));
}

TEST_CASE("is_measured is true for every name of measured_values", "[values]") {
  for (const auto& [name, value] : measured_values(report_at(1))) {
    CAPTURE(name);
    CHECK(is_measured(name));
  }
  CHECK_FALSE(is_measured("loss"));
}

TEST_CASE("mem is that of the fullest GPU, and every GPU's is reported", "[values]") {
  auto report = report_at(1);
  CHECK_FALSE(measured_values(report).contains("memory_bytes/0"));
  report.memory_by_gpu = {{0, 30}, {2, 50}, {10, 40}};
  const auto values = measured_values(report);
  CHECK(values.at("memory_bytes") == 50);
  CHECK(values.at("memory_bytes/0") == 30);
  CHECK(values.at("memory_bytes/2") == 50);
  CHECK(values.at("memory_bytes/10") == 40);
  CHECK(is_measured("memory_bytes/10"));
  const auto summary = summary_values({.peak_memory_by_gpu = report.memory_by_gpu});
  CHECK(summary.at("peak_memory_bytes") == 50);
  CHECK(summary.at("peak_memory_bytes/10") == 40);
}

TEST_CASE("tags have transformers' names", "[values]") {
  CHECK(tag_of("loss") == "train/loss");
  CHECK(tag_of("eval_loss") == "eval/loss");
  CHECK(tag_of("test_loss") == "test/loss");
  CHECK(tag_of("evaluated") == "train/evaluated");
  CHECK(tag_of("train_runtime") == "train/train_runtime");
}

TEST_CASE("an evaluation's values get their prefix once", "[values]") {
  CHECK(eval_values({{"loss", 1}, {"eval_runtime", 2}}) ==
        Values{{"eval_loss", 1}, {"eval_runtime", 2}});
}

TEST_CASE("peaks are found by the names that drivers report", "[values]") {
  struct Case {
    const char* name;
    double tflops;
  };
  const auto [name, tflops] = GENERATE(values<Case>({
      {"NVIDIA A100-SXM4-80GB", 312},
      {"NVIDIA A100 80GB PCIe", 312},
      {"NVIDIA H100 80GB HBM3", 989},
      {"NVIDIA H100 PCIe", 756},
      {"NVIDIA H100 NVL", 835},
      {"NVIDIA H200", 989},
      {"NVIDIA GH200 480GB", 989},
      {"NVIDIA B200", 2250},
      {"NVIDIA A10", 125},
      {"NVIDIA A10G", 70},
      {"NVIDIA L40S", 362},
      {"NVIDIA GeForce RTX 4090", 165},
      {"NVIDIA GeForce RTX 3090", 71},
      {"NVIDIA RTX 6000 Ada Generation", 364},
      {"Quadro RTX 6000", 0},
      {"NVIDIA GeForce RTX 4090 Laptop GPU", 0},
      {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0},
      {"NVIDIA Made-up 80GB", 0},
      {"", 0},
  }));
  CAPTURE(name);
  CHECK(peak_tflops(name) == tflops);
}
