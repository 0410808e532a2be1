// Measures the data component on generated rows: data_bench [ROWS [TOKENIZER]]. A line per figure.
// Without a tokenizer's folder the encoder is trivial, so all but the tokenizer is measured.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <fmt/format.h>

#include "runtime/data/loader.hpp"
#include "runtime/data/parallel.hpp"
#include "runtime/data/prepare.hpp"
#include "runtime/data/share.hpp"
#include "runtime/data/text_encoder.hpp"
#include "tests/runtime/data/toy_encoder.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;

namespace {

struct Time {
  double wall = 0, cpu = 0;  // seconds; cpu is that of all threads of this process
};

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
Time timed(Work work) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          cpu_seconds() - cpu};
}

// Conversations with lengths distributed as in instruction datasets: median 150 bytes.
void write_rows(const std::string& path, std::size_t rows) {
  std::ofstream out(path, std::ios::binary);
  std::mt19937 random(1);
  std::lognormal_distribution<double> length(5, 0.8);
  const std::string words =
      "the quick brown fox jumps over the lazy dog, and \\u00e9t\\u00e9 is \\\"summer\\\"\\n";
  for (std::size_t i = 0; i < rows; ++i) {
    std::string text;
    const auto wanted = std::min<std::size_t>(static_cast<std::size_t>(length(random)), 8000);
    while (text.size() < wanted) text += words;
    out << fmt::format(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"Question {}?\"}}, "
        "{{\"role\": \"assistant\", \"content\": \"{}\"}}]}}\n",
        i, text);
  }
}

void measure(std::size_t rows, const tests::TempDir& dir, const data::Encoder& encoder) {
  const std::string path = dir.path("rows.jsonl");
  write_rows(path, rows);
  const double mb = static_cast<double>(std::filesystem::file_size(path)) / 1e6;
  fmt::print("{} rows, {:.0f} MB, {} cores\n", rows, mb, data::usable_cores());

  const data::MappedFile file(path);
  std::size_t members = 0;
  Time s = timed([&] {
    std::string_view rest = file.bytes();
    while (!rest.empty()) members += data::parse_row(data::take_line(rest)).size();
  });
  fmt::print("parsing rows: {:.0f} MB and {:.0f} rows a CPU second\n", mb / s.cpu,
             static_cast<double>(members) / s.cpu);

  const data::PrepareOptions options{.cache = dir.path("cache"), .max_length = 2048};
  s = timed([&] { data::prepare({{path}}, options, encoder); });
  fmt::print("tokenising: {:.1f} MB and {:.0f} rows a CPU second, {:.1f} s\n", mb / s.cpu,
             static_cast<double>(rows) / s.cpu, s.wall);
  s = timed([&] { data::prepare({{path}}, options, encoder); });
  const data::Prepared prepared = data::prepare({{path}}, options, encoder);
  const data::Dataset& dataset = prepared.dataset;
  fmt::print("opening the cache, {} tokens in {} examples: {:.3f} s, {:.3f} of CPU\n",
             dataset.tokens(), dataset.size(), s.wall, s.cpu);

  const auto selections = data::split(dataset.ranges(), 0, 1).train;
  for (const bool packing : {false, true}) {
    const data::ScheduleOptions plan{.global_batch = 256, .packing = packing, .capacity = 2048};
    data::Schedule schedule(dataset.lengths(), selections, plan);
    std::int64_t steps = 0;
    s = timed([&] { steps = schedule.at(schedule.steps_in(0) / 2).step; });
    fmt::print("planning an epoch of {} items, packing {}: {:.3f} s of CPU\n", schedule.items_in(0),
               packing ? "on" : "off", s.cpu);
    if (packing)
      fmt::print("bins are {:.2f} % full\n",
                 100.0 * static_cast<double>(dataset.tokens()) /
                     (2048.0 * static_cast<double>(schedule.items_in(0))));
    const std::int64_t end = std::min<std::int64_t>(schedule.steps_in(0), 200);
    data::Loader loader(dataset, schedule, {.world = 8, .max_items = 8, .end_step = end});
    std::int64_t tokens = 0;
    double worst = 0;
    s = timed([&] {
      while (const auto batches = loader.next()) {
        tokens += batches->tokens;
        double sum = 0;
        for (const double cost : batches->costs) sum += cost;
        const double top = *std::max_element(batches->costs.begin(), batches->costs.end());
        worst += top * 8 / sum - 1;
      }
    });
    fmt::print(
        "loading rank 0 of 8: {:.2f} ms of CPU a step of {} items; dearest rank {:.2f} % over\n",
        1e3 * s.cpu / static_cast<double>(end), plan.global_batch,
        100 * worst / static_cast<double>(end));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000;
  const tests::TempDir dir(tests::TempDir::in_memory());
  if (argc > 2) {
    const auto tokenizer = text::Tokenizer::load(argv[2]);
    measure(rows, dir, data::TextEncoder(tokenizer));
  } else {
    measure(rows, dir, tests::ToyEncoder());
  }
  return 0;
}
