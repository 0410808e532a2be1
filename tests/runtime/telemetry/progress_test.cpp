#include "runtime/telemetry/progress.hpp"

#include <cmath>

#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("the progress line shows all values of a report", "[progress]") {
  CHECK(progress_line(report_at(120), {.eta_seconds = 725}) ==
        "step 120/400 30%  epoch 1.20  loss 0.0167  lr 2.00e-05  norm 0.5000  20.0k tok/s  "
        "5.00k target tok/s  494 TFLOP/s/GPU  MFU 50.0%  mem 61.0/80.0 GiB  comm 8%  eta 12m05s");
}

TEST_CASE("highlights follow the loss and outlast rates in a narrow line", "[progress]") {
  auto report = report_at(120);
  report.highlights = {{"reward", -0.53125}, {"kl", 1.25e-05}, {"length", 123.44}};
  const ProgressEstimate estimate{.eta_seconds = 725};
  CHECK_THAT(progress_line(report, estimate),
             Contains("  loss 0.0167  reward -0.5312  kl 1.25e-05  length 123.4  lr 2.00e-05  "));
  CHECK(progress_line(report, estimate, 80) ==
        "step 120/400 30%  loss 0.0167  reward -0.5312  kl 1.25e-05  length 123.4");
}

TEST_CASE("unknown values are not in the line", "[progress]") {
  CHECK(progress_line({.step = 3, .loss = 1, .grad_norm = 2}, {.eta_seconds = -1}) ==
        "step 3  epoch 0.00  loss 1.0000  lr 0.00e+00  norm 2.0000");
}

TEST_CASE("a narrow line leaves out the least important parts", "[progress]") {
  const auto report = report_at(120);
  const ProgressEstimate estimate{.eta_seconds = 725};
  CHECK(progress_line(report, estimate, 80) ==
        "step 120/400 30%  loss 0.0167  norm 0.5000  20.0k tok/s  eta 12m05s");
  CHECK(progress_line(report, estimate, 20) == "step 120/400 30%");
  CHECK(progress_line(report, estimate, 5) == "step ");
  for (std::size_t width = 1; width < 200; ++width) {
    const auto line = progress_line(report, estimate, width);
    CHECK(line.size() <= width);
    CHECK(line.starts_with(std::string("step 120/400 30%").substr(0, width)));
  }
}

TEST_CASE("colors take no columns", "[progress]") {
  const ProgressEstimate estimate{.eta_seconds = 725};
  const auto plain = progress_line(report_at(120), estimate, 60);
  auto coloured = progress_line(report_at(120), estimate, 60, true);
  CHECK_THAT(coloured, Contains("\033[1mloss 0.0167\033[0m"));
  for (auto at = coloured.find('\033'); at != coloured.npos; at = coloured.find('\033'))
    coloured.erase(at, coloured.find('m', at) + 1 - at);
  CHECK(coloured == plain);
}

TEST_CASE("a gradient norm five times its average is marked", "[progress]") {
  ProgressEstimator estimator;
  auto report = report_at(1);
  for (int step = 1; step <= 10; ++step) {
    report.step = step;
    CHECK_FALSE(estimator.update(report).spike);
  }
  report.step = 11;
  report.grad_norm = 2.4;
  CHECK_FALSE(estimator.update(report).spike);
  report.step = 12;
  report.grad_norm = 5;
  const auto estimate = estimator.update(report);
  CHECK(estimate.spike);
  CHECK_THAT(progress_line(report, estimate), Contains("norm 5.0000!"));
}

TEST_CASE("a norm that is not finite is marked and does not change the average", "[progress]") {
  ProgressEstimator estimator;
  auto report = report_at(1);
  for (int step = 1; step <= 5; ++step) {
    report.step = step;
    estimator.update(report);
  }
  report.grad_norm = NAN;
  report.skipped_steps = 1;
  const auto estimate = estimator.update(report);
  CHECK_THAT(progress_line(report, estimate), Contains("norm nan!"));
  CHECK_THAT(progress_line(report, estimate), Contains("skipped 1"));
  report.grad_norm = 5;
  CHECK(estimator.update(report).spike);
}

TEST_CASE("a loss scale is shown in the line after it has changed", "[progress]") {
  ProgressEstimator estimator;
  auto report = report_at(1);
  report.loss_scale = 32768;
  const auto estimate = estimator.update(report);
  CHECK_THAT(progress_line(report, estimate), !Contains("loss scale"));
  report.loss_scale_changed = true;
  CHECK_THAT(progress_line(report, estimate), Contains("  loss scale 32768  "));
}

TEST_CASE("the remaining time is estimated from the steps of this run", "[progress]") {
  ProgressEstimator estimator(100);  // resumed
  auto report = report_at(110);
  report.seconds = 20;
  CHECK(estimator.update(report).eta_seconds == 580);
  report.step = 400;
  CHECK(estimator.update(report).eta_seconds == 0);
  report.total_steps = 0;
  CHECK(estimator.update(report).eta_seconds < 0);
}

TEST_CASE("numbers and times are short", "[progress]") {
  CHECK(short_count(0) == "0");
  CHECK(short_count(842.4) == "842");
  CHECK(short_count(999.6) == "1.00k");
  CHECK(short_count(37240) == "37.2k");
  CHECK(short_count(999960) == "1.00M");
  CHECK(short_count(1.25e9) == "1.25G");
  CHECK(short_count(NAN) == "-");
  CHECK(short_time(0.4) == "0s");
  CHECK(short_time(59.6) == "1m00s");
  CHECK(short_time(725) == "12m05s");
  CHECK(short_time(12000) == "3h20m");
  CHECK(short_time(187200) == "2d04h");
  CHECK(short_time(INFINITY) == "-");
}
