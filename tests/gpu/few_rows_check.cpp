// Compares our products of few rows with ATen's in fp32, for many shapes and ways to distribute the
// work, and times them beside at::mm on weights that are not in the cache. Does the same for
// attention over pages, beside our kernel for fp32. Exits with status 1 if any differs.
//   few_rows_check [check [ROWS ...]] [time] [attention]
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/kernels/few_rows.hpp"
#include "runtime/kernels/gpu_tensors.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/kernels/recording.hpp"

namespace {

using namespace mgpu;
using at::Tensor;
using kernels::FewRowsPlan;

bool good = true;

at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions(at::kCUDA).dtype(type);
}

kernels::FewRows product_of(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                            const Tensor& a = {}, const Tensor& low = {}) {
  return {.x = x.const_data_ptr(),
          .w = w.const_data_ptr(),
          .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
          .y = y.data_ptr(),
          .a = a.defined() ? a.const_data_ptr() : nullptr,
          .low = low.defined() ? low.data_ptr() : nullptr,
          .ranks = a.defined() ? a.size(0) : 0,
          .rows = x.size(0),
          .depth = x.size(1),
          .outputs = w.size(0)};
}

void run(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
         const FewRowsPlan& plan, const Tensor& a = {}, const Tensor& low = {}) {
  kernels::few_rows(ops::on_gpu::type_of(x), product_of(x, w, bias, y, a, low), plan,
                    ops::on_gpu::stream_of(x));
}

std::string name_of(const FewRowsPlan& plan) {
  return std::to_string(plan.width) + "x" + std::to_string(plan.groups) + " /" +
         std::to_string(plan.splits) + " s" + std::to_string(plan.stages) +
         (plan.early ? " early" : "");
}

std::vector<FewRowsPlan> all_plans() {
  std::vector<FewRowsPlan> plans;
  for (const int width : kernels::kFewRowsWidths)
    for (const int groups : {1, 2, 4})
      for (const int splits : {1, 2, 4, 8})
        plans.push_back({.width = width, .groups = groups, .splits = splits, .stages = 0});
  return plans;
}

// All plans for one shape; prints the largest error.
void check(std::int64_t rows, std::int64_t depth, std::int64_t outputs, bool with_bias,
           at::ScalarType type) {
  const auto x = at::randn({rows, depth}, on_gpu(type));
  const auto w = at::randn({outputs, depth}, on_gpu(type)).mul_(.02);
  const auto bias = with_bias ? at::randn({outputs}, on_gpu(type)) : Tensor();
  auto wanted = at::mm(x.to(at::kFloat), w.to(at::kFloat).t());
  if (with_bias) wanted.add_(bias);
  const double norm = wanted.norm().item<double>();
  const auto ranks = outputs >= 1536 ? 48 : 200;
  const auto a = at::randn({ranks, depth}, on_gpu(type)).mul_(.02);
  const auto wanted_low = at::mm(x.to(at::kFloat), a.to(at::kFloat).t());
  double most = 0;
  bool same = true;
  int count = 0;
  std::string worst;
  for (auto plan : all_plans()) {
    plan.early = count % 2 == 0;
    plan.stages = count % 3 == 0 ? 2 : 0;
    // Lines around y show writes beyond it.
    const auto memory =
        at::full({rows + 2, outputs}, std::numeric_limits<float>::quiet_NaN(), on_gpu(type));
    const auto y = memory.narrow(0, 1, rows);
    if (!kernels::can_few_rows(product_of(x, w, bias, y), plan)) continue;
    ++count;
    const auto low = at::full({rows, ranks}, std::numeric_limits<float>::quiet_NaN(), on_gpu(type));
    run(x, w, bias, y, plan, a, low);
    const double error =
        std::max(y.to(at::kFloat).sub(wanted).norm().item<double>() / norm,
                 (low.to(at::kFloat).sub(wanted_low).norm() / wanted_low.norm()).item<double>());
    const bool inside = memory.select(0, 0).isnan().all().item<bool>() &&
                        memory.select(0, rows + 1).isnan().all().item<bool>();
    if (!(error <= most) || !inside) {
      most = std::isnan(error) ? 1e9 : std::max(most, error);
      worst = name_of(plan) + (inside ? "" : " WRITES OUTSIDE");
      if (!inside) good = false;
    }
    const auto again = at::empty_like(y);
    run(x, w, bias, again, plan);
    same = same && at::equal(again, y);
  }
  const double limit = type == at::kHalf ? 5e-4 : 4e-3;
  const bool fine = count > 0 && most <= limit && same;
  good = good && fine;
  printf("%-4s [%ld, %ld] x %ld%s %s: %d plans, error %.1e (%s)%s\n", fine ? "ok" : "BAD",
         static_cast<long>(rows), static_cast<long>(depth), static_cast<long>(outputs),
         with_bias ? " + bias" : "", type == at::kHalf ? "f16" : "bf16", count, most, worst.c_str(),
         same ? "" : ", NOT THE SAME BITS AGAIN");
}

// The same for gated products, whose reference is swiglu in the type of x.
void check_gated(std::int64_t rows, std::int64_t depth, std::int64_t outputs, bool with_bias,
                 at::ScalarType type) {
  const auto x = at::randn({rows, depth}, on_gpu(type));
  const auto w = at::randn({2 * outputs, depth}, on_gpu(type)).mul_(.05);
  const auto bias = with_bias ? at::randn({2 * outputs}, on_gpu(type)) : Tensor();
  auto both = at::mm(x.to(at::kFloat), w.to(at::kFloat).t());
  if (with_bias) both.add_(bias);
  const auto wanted = ops::swiglu(both.to(type)).to(at::kFloat);
  double most = 0;
  int count = 0;
  std::string worst;
  for (const auto& plan : all_plans()) {
    const auto memory =
        at::full({rows + 2, outputs}, std::numeric_limits<float>::quiet_NaN(), on_gpu(type));
    const auto y = memory.narrow(0, 1, rows);
    auto product = product_of(x, w, bias, y);
    product.outputs = outputs;
    product.gated = true;
    if (!kernels::can_few_rows(product, plan)) continue;
    ++count;
    kernels::few_rows(ops::on_gpu::type_of(x), product, plan, ops::on_gpu::stream_of(x));
    const double error = (y.to(at::kFloat).sub(wanted).norm() / wanted.norm()).item<double>();
    const bool inside = memory.select(0, 0).isnan().all().item<bool>() &&
                        memory.select(0, rows + 1).isnan().all().item<bool>();
    good = good && inside;
    if (error <= most && inside) continue;
    most = std::isnan(error) ? 1e9 : std::max(most, error);
    worst = name_of(plan) + (inside ? "" : " WRITES OUTSIDE");
  }
  const bool fine = count > 0 && most <= (type == at::kHalf ? 1e-3 : 8e-3);
  good = good && fine;
  printf("%-4s gated [%ld, %ld] x %ld%s %s: %d plans, error %.1e (%s)\n", fine ? "ok" : "BAD",
         static_cast<long>(rows), static_cast<long>(depth), static_cast<long>(outputs),
         with_bias ? " + bias" : "", type == at::kHalf ? "f16" : "bf16", count, most,
         worst.c_str());
}

// Microseconds of one call of `work`, which does `count` products.
double time_of(ops::Recording::Store& store, const std::function<void()>& work, int count) {
  constexpr int kRuns = 6;
  ops::Recording piece(store, work);
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  piece.run();
  cudaEventRecord(begin, stream);
  for (int i = 0; i < kRuns; ++i) piece.run();
  cudaEventRecord(end, stream);
  cudaEventSynchronize(end);
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms * 1e3 / kRuns / count;
}

void time_shape(const char* name, std::int64_t depth, std::int64_t outputs) {
  constexpr int kLayers = 28;
  const auto type = at::kBFloat16;
  ops::Recording::Store store(at::Device(at::kCUDA, 0));
  std::vector<Tensor> weights;
  for (int i = 0; i < kLayers; ++i)
    weights.push_back(at::randn({outputs, depth}, on_gpu(type)).mul_(.02));
  const double bytes = 2. * static_cast<double>(depth * outputs);
  for (const std::int64_t rows : {1, 16, 32, 64, 128, 256}) {
    const auto x = at::randn({rows, depth}, on_gpu(type));
    auto y = at::empty({rows, outputs}, on_gpu(type));
    const double theirs = time_of(
        store,
        [&] {
          for (const auto& w : weights) at::mm_out(y, x, w.t());
        },
        kLayers);
    printf("%-7s %3ld rows: at::mm %5.2f us %4.2f TB/s |", name, static_cast<long>(rows), theirs,
           bytes / theirs * 1e-6);
    std::vector<std::pair<double, std::string>> ours;
    for (const auto& plan : all_plans()) {
      if (!kernels::can_few_rows(product_of(x, weights[0], {}, y), plan)) continue;
      const auto block = plan.width * plan.groups;
      const auto blocks = (outputs + block - 1) / block * plan.splits;
      if (blocks < 40 || blocks > 132) continue;
      ours.emplace_back(time_of(
                            store,
                            [&] {
                              for (const auto& w : weights) run(x, w, {}, y, plan);
                            },
                            kLayers),
                        name_of(plan) + " b" + std::to_string(blocks));
    }
    std::ranges::sort(ours);
    for (std::size_t i = 0; i < std::min<std::size_t>(3, ours.size()); ++i)
      printf(" %5.2f (%s)", ours[i].first, ours[i].second.c_str());
    printf("\n");
    fflush(stdout);
  }
}

// Attention over pages: `rows` sequences of about `length` tokens (all, if `equal`).
void attention(std::int64_t rows, int length, bool equal, int heads, int dim, bool only_check) {
  constexpr int kLayers = 28, kPage = 16, kv_heads = 2;
  const auto type = at::kBFloat16;
  const int layers = only_check ? 1 : kLayers;
  ops::Recording::Store store(at::Device(at::kCUDA, 0));
  const std::int64_t width = length / kPage + 1, pages = rows * width + 1;
  const auto keys = at::randn({layers, pages, kPage, kv_heads, dim}, on_gpu(type));
  const auto values = at::randn(keys.sizes(), keys.options());
  const auto table = at::randperm(rows * width, at::kLong).add(1).to(at::kInt).to(at::kCUDA);
  auto lengths =
      equal ? at::full({rows}, length, at::kInt) : at::randint(1, length + 1, {rows}, at::kInt);
  lengths = lengths.to(at::kCUDA);
  const auto q = at::randn({rows, (heads + 2 * kv_heads) * dim}, on_gpu(type));
  const auto call = [&](const Tensor& in, const Tensor& k, const Tensor& v, const Tensor& out,
                        int splits) {
    const auto parts = rows * heads * splits;
    const auto f = [&](std::int64_t n) { return at::empty({n}, on_gpu(at::kFloat)); };
    const auto sums = f(parts * dim), largest = f(parts), totals = f(parts);
    kernels::paged_attention(ops::on_gpu::type_of(in),
                             {.q = in.const_data_ptr(),
                              .keys = k.const_data_ptr(),
                              .values = v.const_data_ptr(),
                              .table = table.const_data_ptr<std::int32_t>(),
                              .lengths = lengths.const_data_ptr<std::int32_t>(),
                              .out = out.data_ptr(),
                              .q_stride = in.stride(0),
                              .table_stride = width,
                              .kv_heads = kv_heads,
                              .splits = splits,
                              .scale = 1 / std::sqrt(static_cast<float>(dim)),
                              .part_values = sums.data_ptr<float>(),
                              .part_largest = largest.data_ptr<float>(),
                              .part_totals = totals.data_ptr<float>(),
                              .tokens = pages * kPage},
                             heads / kv_heads, dim, rows, ops::on_gpu::stream_of(in));
  };
  const auto wanted = at::empty({rows, heads * dim}, on_gpu(at::kFloat));
  call(q.to(at::kFloat), keys[0].to(at::kFloat), values[0].to(at::kFloat), wanted, 1);
  double most = 0;
  bool same = true;
  std::vector<std::pair<double, std::string>> times;
  for (const int splits : {1, 2, 3, 4}) {
    const auto out =
        at::full({rows, heads * dim}, std::numeric_limits<float>::quiet_NaN(), on_gpu(type));
    cudaDeviceSynchronize();  // the kernel reads pages before it waits for the one before
    call(q, keys[0], values[0], out, splits);
    const double error = (out.to(at::kFloat).sub(wanted).norm() / wanted.norm()).item<double>();
    most = std::isnan(error) ? 1e9 : std::max(most, error);
    const auto again = at::empty_like(out);
    cudaDeviceSynchronize();
    call(q, keys[0], values[0], again, splits);
    same = same && at::equal(out, again);
    if (only_check || splits == 3) continue;
    times.emplace_back(time_of(
                           store,
                           [&] {
                             for (int i = 0; i < kLayers; ++i)
                               call(q, keys[i], values[i], out, splits);
                           },
                           kLayers),
                       std::to_string(splits));
  }
  const bool fine = most < 5e-3 && same;
  good = good && fine;
  if (fine && only_check) return;
  printf("%-4s attention %3ld rows %s %d tokens, %d heads x %d: error %.1e%s |",
         fine ? "ok" : "BAD", static_cast<long>(rows), equal ? "of" : "up to", length, heads, dim,
         most, same ? "" : ", NOT THE SAME BITS AGAIN");
  std::ranges::sort(times);
  const double bytes =
      4. * kv_heads * dim * static_cast<double>(lengths.sum().item<std::int64_t>());
  for (const auto& [us, name] : times)
    printf(" %.1f (%s, %.2f TB/s)", us, name.c_str(), bytes / us * 1e-6);
  printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a kernel that fails ends the program
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto wanted = [&](const char* word) {
    return words.empty() || std::ranges::find(words, word) != words.end();
  };
  const bool all_rows =
      std::ranges::none_of(words, [](const auto& word) { return word[0] <= '9'; });
  if (wanted("check")) {
    for (const auto type : {at::kBFloat16, at::kHalf})
      for (const std::int64_t rows : {1, 8, 33, 64, 100, 200, 256}) {
        if (type == at::kHalf && rows != 33 && rows != 100) continue;
        if (!all_rows && std::ranges::find(words, std::to_string(rows)) == words.end()) continue;
        check(rows, 1536, 2048, true, type);
        check(rows, 1536, 17920, false, type);
        check(rows, 8960, 1536, false, type);
        check(rows, 4864, 896, true, type);
        check(rows, 72, 40, true, type);
        check(rows, 8, 8, false, type);
        check_gated(rows, 1536, 8960, false, type);
        check_gated(rows, 896, 4864, true, type);
        check_gated(rows, 72, 40, true, type);
      }
  }
  if (wanted("time")) {
    time_shape("qkv", 1536, 2048);
    time_shape("o", 1536, 1536);
    time_shape("gate_up", 1536, 17920);
    time_shape("down", 8960, 1536);
  }
  if (wanted("attention")) {
    for (const std::int64_t rows : {1, 5, 64}) {
      for (const int length : {1, 15, 16, 17, 33, 64, 65, 129, 500, 3000})
        for (const int dim : {64, 128})
          attention(rows, length, false, dim == 64 ? 14 : 12, dim, true);
    }
  }
  if (wanted("attention") && wanted("time")) {
    for (const std::int64_t rows : {16, 64, 128, 256}) {
      attention(rows, 384, true, 12, 128, false);
      attention(rows, 768, false, 12, 128, false);
    }
  }
  printf("%s\n", good ? "all fine" : "SOME ARE WRONG");
  return good ? 0 : 1;
}
