#include "runtime/data/prepare.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/shard_maker.hpp"

namespace mgpu::data {

namespace {

SourceReport report_of(const SourcePlan& plan, const FileShards& file) {
  SourceReport report{.path = plan.file.path(),
                      .digest = plan.file.digest(),
                      .format = std::string(name_of(plan.format))};
  report.notes = plan.reader.notes();
  for (std::size_t piece = 0; piece < file.shards.size(); ++piece) {
    const Shard& shard = file.shards[piece];
    report.rows += shard.rows();
    report.bad += shard.bad();
    report.lost += shard.lost();
    report.unwritten_tools += shard.unwritten_tools();
    for (const ShardNote& note : shard.notes()) {
      const std::string text =
          fmt::format("{}:{}: {}", plan.file.path(), file.firsts[piece] + note.line, note.text);
      if (note.bad && report.bad_rows.size() < 8) report.bad_rows.push_back(text);
      if (!note.bad && report.lost_prompt.empty()) report.lost_prompt = text;
    }
  }
  return report;
}

void check_bad_rows(const SourceReport& report, bool skip_bad_rows) {
  if (report.bad == 0) return;
  if (!skip_bad_rows) throw rendezvous::InputError(report.bad_rows.front());
  if (report.bad == report.rows)
    throw rendezvous::InputError(
        fmt::format("all rows are bad; the first: {}", report.bad_rows.front()));
}

// Sets which rows of each file belong to the slices of its dataset. Bad rows do not count.
void apply_ranges(const std::vector<Source>& sources, std::vector<TokenizedSource>& files) {
  for (std::size_t i = 0, end = 0; i < files.size(); i = end) {
    std::uint64_t rows = 0;
    for (; end < files.size() && sources[end].dataset == sources[i].dataset; ++end)
      rows += files[end].size();
    try {
      const auto [first, last] = sources[i].range.of(rows);
      std::uint64_t before = 0;  // rows of the dataset in earlier files
      for (std::size_t f = i; f < end; ++f) {
        const std::uint64_t count = files[f].size();
        files[f].first_row = std::clamp(first, before, before + count) - before;
        files[f].last_row = std::clamp(last, before, before + count) - before;
        before += count;
      }
    } catch (const std::runtime_error& e) {
      rendezvous::throw_like(e, fmt::format("{}: {}", sources[i].path, e.what()));
    }
  }
}

}  // namespace

Prepared prepare(const std::vector<Source>& sources, const PrepareOptions& options,
                 const Encoder& encoder) {
  if (options.part < 0 || options.part >= options.parts || (options.parts > 1 && !options.barrier))
    throw std::logic_error(
        "prepare: part must be below parts, and several parts require a barrier");
  std::vector<SourcePlan> plans;
  plans.reserve(sources.size());
  for (const Source& source : sources) plans.push_back(plan_source(source, options, encoder));

  std::vector<FileShards> shards = make_shards(plans, options);
  std::vector<TokenizedSource> tokenized;
  std::vector<SourceReport> reports;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    reports.push_back(report_of(plans[i], shards[i]));
    check_bad_rows(reports.back(), options.skip_bad_rows);
    tokenized.push_back({.path = plans[i].file.path(),
                         .weight = sources[i].weight,
                         .shards = std::move(shards[i].shards),
                         .first_lines = std::move(shards[i].firsts)});
  }
  apply_ranges(sources, tokenized);

  Dataset dataset(std::move(tokenized), options.max_length, reports);
  if (dataset.size() == 0)
    throw rendezvous::InputError(fmt::format(
        "no example is left: no row has a target token within max_length {}; the first file is {}",
        options.max_length, sources.empty() ? "(none)" : sources[0].path));
  return {.dataset = std::move(dataset), .reports = std::move(reports)};
}

}  // namespace mgpu::data
