#include "runtime/data/prepare.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/data/digest.hpp"
#include "runtime/data/example.hpp"
#include "runtime/data/parallel.hpp"
#include "runtime/data/source_file.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

// Part of every cache key. Increase it when the tokens of a row or the layout of shards change.
constexpr const char* kVersion = "1";
constexpr std::size_t kRowsTriedForFormat = 100;

// One source file: how its rows are read, and where its pieces are cached.
struct SourcePlan {
  SourceFile file;
  double weight;
  Format format;
  RowReader reader;
  std::string key;
  fs::path folder;
  std::int64_t vocabulary;  // 0: unknown

  fs::path path_of(std::size_t piece) const { return folder / fmt::format("{:05}.tokens", piece); }
};

struct Work {
  const SourcePlan* plan;
  std::size_t piece;
};

// The first valid row decides the format of the file.
Json first_row_of(const SourceFile& file) {
  std::optional<std::string> first_error;
  std::size_t tried = 0;
  for (std::size_t piece = 0; piece < file.pieces(); ++piece) {
    std::string_view rest = file.piece(piece);
    for (std::uint64_t line = file.first_line(piece); !rest.empty(); ++line) {
      const std::string_view row = take_line(rest);
      if (blank(row)) continue;
      try {
        return parse_row(row);
      } catch (const RowError& e) {
        if (!first_error) first_error = fmt::format("{}:{}: {}", file.path(), line, e.what());
        if (++tried == kRowsTriedForFormat) throw std::runtime_error(*first_error);
      }
    }
  }
  throw std::runtime_error(first_error ? *first_error : fmt::format("{} has no rows", file.path()));
}

std::string key_of(const SourceFile& file, Format format, const RowOptions& options,
                   const Encoder& encoder) {
  const Json parts = {
      kVersion,
      file.digest(),
      encoder.fingerprint(),
      std::string(name_of(format)),
      options.text_field,
      options.prompt_template,
      options.completion_only_loss ? (*options.completion_only_loss ? "yes" : "no") : "auto",
      options.assistant_only_loss,
      options.map_sharegpt_roles,
      options.vocabulary};
  return sha256(parts.dump(-1, ' ', true, Json::error_handler_t::replace));
}

SourcePlan plan_source(const Source& source, const PrepareOptions& options,
                       const Encoder& encoder) {
  if (!(source.weight > 0 && source.weight <= 1e6))
    throw std::runtime_error(
        fmt::format("the weight of {} is {}; it must be above 0 and at most 1000000", source.path,
                    source.weight));
  SourceFile file(source.path, options.threads);
  const Json row = first_row_of(file);
  try {
    const Format format = format_of(row, options.rows);
    RowReader reader(format, options.rows, is_conversational(format, row, encoder), encoder);
    std::string key = key_of(file, format, options.rows, encoder);
    fs::path folder = options.cache / key.substr(0, 32);
    return {.file = std::move(file),
            .weight = source.weight,
            .format = format,
            .reader = std::move(reader),
            .key = std::move(key),
            .folder = std::move(folder),
            .vocabulary = options.rows.vocabulary};
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(fmt::format("{}: {}", source.path, e.what()));
  }
}

std::string tokenize(const Work& work, bool skip_bad_rows) {
  const SourcePlan& plan = *work.plan;
  ShardWriter writer;
  std::string_view rest = plan.file.piece(work.piece);
  for (std::uint64_t line = 0; !rest.empty(); ++line) {
    const std::string_view row = take_line(rest);
    if (blank(row)) continue;
    try {
      writer.add(plan.reader.read(parse_row(row)), line);
    } catch (const std::runtime_error& e) {  // of the row, the tokenizer or the template
      if (!skip_bad_rows)
        throw std::runtime_error(fmt::format("{}:{}: {}", plan.file.path(),
                                             plan.file.first_line(work.piece) + line, e.what()));
      writer.add_bad(line, e.what());
    }
  }
  return writer.finish(plan.key, work.piece);
}

void write_shard(const fs::path& path, const std::string& bytes) {
  try {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      throw std::runtime_error(
          fmt::format("cannot create {}: {}", path.parent_path().string(), error.message()));
    write_atomically(path, bytes);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(
        fmt::format("{}; set dataset_prepared_path to another folder", e.what()));
  }
}

Shard shard_at(const fs::path& path, const Work& work) {
  return Shard(path, work.plan->key, work.piece, work.plan->vocabulary);
}

std::optional<Shard> usable_shard(const Work& work) {
  const fs::path path = work.plan->path_of(work.piece);
  if (!fs::exists(path)) return std::nullopt;
  try {
    return shard_at(path, work);
  } catch (const ShardError&) {
    return std::nullopt;  // tokenized again and replaced
  }
}

Shard load_or_tokenize(const Work& work, const PrepareOptions& options) {
  if (auto shard = usable_shard(work)) return std::move(*shard);
  const fs::path path = work.plan->path_of(work.piece);
  const std::string bytes = tokenize(work, options.skip_bad_rows);
  write_shard(path, bytes);
  return shard_at(path, work);
}

// Waits for a shard that another part has written.
Shard wait_for_shard(const Work& work, const PrepareOptions& options) {
  const fs::path path = work.plan->path_of(work.piece);
  const auto deadline = std::chrono::steady_clock::now() + options.visible_within;
  while (!fs::exists(path)) {
    if (std::chrono::steady_clock::now() >= deadline)
      throw std::runtime_error(
          fmt::format("{} is missing although all ranks have finished tokenizing; set "
                      "dataset_prepared_path to a folder that is shared by all nodes",
                      path.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Listing the folder makes a network file system refresh its view.
    std::error_code ignored;
    for (fs::directory_iterator it(work.plan->folder, ignored), end; it != end && !ignored;
         it.increment(ignored)) {
    }
  }
  return shard_at(path, work);
}

// Removes files that a process left behind when it was killed while writing.
void remove_stale_files(const fs::path& folder) {
  std::error_code ignored;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder, ignored), end; it != end && !ignored;
       it.increment(ignored))
    if (const auto time = it->last_write_time(ignored);
        it->path().extension() != ".tokens" && !ignored && now - time > std::chrono::hours(24))
      fs::remove(it->path(), ignored);
}

SourceReport report_of(const SourcePlan& plan, const std::vector<Shard>& shards) {
  SourceReport report{.path = plan.file.path(),
                      .digest = plan.file.digest(),
                      .format = std::string(name_of(plan.format))};
  report.notes = plan.reader.notes();
  for (std::size_t piece = 0; piece < shards.size(); ++piece) {
    const Shard& shard = shards[piece];
    report.rows += shard.rows();
    report.bad += shard.bad();
    report.lost += shard.lost();
    for (const ShardNote& note : shard.notes()) {
      const std::string text = fmt::format("{}:{}: {}", plan.file.path(),
                                           plan.file.first_line(piece) + note.line, note.text);
      if (note.bad && report.bad_rows.size() < 8) report.bad_rows.push_back(text);
      if (!note.bad && report.lost_prompt.empty()) report.lost_prompt = text;
    }
  }
  return report;
}

void check_bad_rows(const SourceReport& report, bool skip_bad_rows) {
  if (report.bad == 0) return;
  if (!skip_bad_rows) throw std::runtime_error(report.bad_rows.front());
  if (report.bad == report.rows)
    throw std::runtime_error(
        fmt::format("all rows are bad; the first: {}", report.bad_rows.front()));
}

// Makes the shards of this part's pieces, and after the barrier opens those of the other parts.
std::vector<Shard> prepare_shards(const std::vector<Work>& work, const PrepareOptions& options) {
  std::vector<std::optional<Shard>> shards(work.size());
  const auto parts = static_cast<std::size_t>(options.parts);
  const auto part = static_cast<std::size_t>(options.part);
  const std::size_t own = work.size() / parts + (part < work.size() % parts ? 1 : 0);
  for_each_index(own, options.threads, [&](std::size_t i) {
    const std::size_t at = part + i * parts;
    shards[at] = load_or_tokenize(work[at], options);
  });
  if (options.barrier) options.barrier();
  for_each_index(work.size(), options.threads, [&](std::size_t at) {
    if (!shards[at]) shards[at] = wait_for_shard(work[at], options);
  });
  std::vector<Shard> out;
  for (auto& shard : shards) out.push_back(std::move(*shard));
  return out;
}

}  // namespace

Prepared prepare(const std::vector<Source>& sources, const PrepareOptions& options,
                 const Encoder& encoder) {
  if (options.part < 0 || options.part >= options.parts || (options.parts > 1 && !options.barrier))
    throw std::logic_error(
        "prepare: part must be below parts, and several parts require a barrier");
  std::vector<SourcePlan> plans;
  plans.reserve(sources.size());
  std::vector<Work> work;
  for (const Source& source : sources) {
    const SourcePlan& plan = plans.emplace_back(plan_source(source, options, encoder));
    remove_stale_files(plan.folder);
    for (std::size_t piece = 0; piece < plan.file.pieces(); ++piece) work.push_back({&plan, piece});
  }

  std::vector<Shard> shards = prepare_shards(work, options);
  std::vector<TokenizedSource> tokenized;
  std::vector<SourceReport> reports;
  auto next = shards.begin();
  for (const SourcePlan& plan : plans) {
    const auto pieces = plan.file.pieces();
    TokenizedSource source{.path = plan.file.path(), .weight = plan.weight};
    source.shards.assign(std::move_iterator(next),
                         std::move_iterator(next + static_cast<std::ptrdiff_t>(pieces)));
    next += static_cast<std::ptrdiff_t>(pieces);
    for (std::size_t piece = 0; piece < pieces; ++piece)
      source.first_lines.push_back(plan.file.first_line(piece));
    reports.push_back(report_of(plan, source.shards));
    check_bad_rows(reports.back(), options.skip_bad_rows);
    tokenized.push_back(std::move(source));
  }

  Dataset dataset(std::move(tokenized), options.max_length, reports);
  if (dataset.size() == 0)
    throw std::runtime_error(fmt::format(
        "no example is left: no row has a target token within max_length {}; the first file is {}",
        options.max_length, sources.empty() ? "(none)" : sources[0].path));
  return {.dataset = std::move(dataset), .reports = std::move(reports)};
}

}  // namespace mgpu::data
