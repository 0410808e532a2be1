#include "runtime/telemetry/report.hpp"

namespace mgpu::telemetry {

Rates rates_of(const StepReport& report) {
  Rates rates;
  if (!(report.seconds > 0)) return rates;
  rates.tokens_per_second = static_cast<double>(report.tokens) / report.seconds;
  rates.label_tokens_per_second = static_cast<double>(report.label_tokens) / report.seconds;
  if (report.world > 0) rates.tflops_per_gpu = report.flops / report.seconds / report.world / 1e12;
  if (report.peak_tflops_per_gpu > 0) rates.mfu = rates.tflops_per_gpu / report.peak_tflops_per_gpu;
  return rates;
}

}  // namespace mgpu::telemetry
