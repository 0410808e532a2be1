#include "runtime/data/source_plan.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/digest.hpp"

namespace mgpu::data {

namespace {

// Part of every cache key. Increase it when the tokens of a row or the layout of shards change.
constexpr const char* kVersion = "2";
constexpr std::size_t kRowsTriedForFormat = 100;

// The columns that are missing because of their types, for a message.
std::string without(const SourceFile& file) {
  if (file.skipped_columns().empty()) return {};
  return fmt::format("; columns of types that are not supported: {}", file.skipped_columns());
}

// The first valid row decides the format of the file.
Json first_row_of(const SourceFile& file, const RowMapping& mapping) {
  std::optional<std::string> first_error;
  std::optional<Json> row;
  std::size_t tried = 0;
  file.for_each_row([&](std::uint64_t number, const Rows& rows) {
    try {
      row = mapped_row(mapping, rows.parse());
    } catch (const RowError& e) {
      if (!first_error) first_error = fmt::format("{}:{}: {}", file.path(), number, e.what());
    }
    return !row && ++tried < kRowsTriedForFormat;
  });
  if (row) return std::move(*row);
  throw rendezvous::InputError(first_error ? *first_error + without(file)
                                           : fmt::format("{} has no rows", file.path()));
}

// A column may be missing because of its type: then no row can be read.
void check_columns(const SourceFile& file, const Json& row, const RowReader& reader) {
  if (!file.skipped_columns().empty()) reader.read(row);
}

std::string key_of(const SourceFile& file, Format format, const RowOptions& options,
                   const Encoder& encoder) {
  Json parts = {
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
  // Only where they differ, so that caches of earlier versions stay valid.
  if (!file.has_pieces() || file.format().kind != FileKind::jsonl) {
    parts.push_back(std::string(name_of(file.format().kind)));
    parts.push_back(file.row_limit());
  }
  if (!options.mapping.is_empty()) parts.push_back(options.mapping.key());
  return sha256(parts.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace

std::filesystem::path SourcePlan::path_of(std::size_t piece) const {
  return folder / fmt::format("{:05}.tokens", piece);
}

SourcePlan plan_source(const Source& source, const PrepareOptions& options,
                       const Encoder& encoder) {
  if (!(source.weight > 0 && source.weight <= 1e6))
    throw rendezvous::InputError(
        fmt::format("the weight of {} is {}; it must be above 0 and at most 1000000", source.path,
                    source.weight));
  const RowOptions& rows = source.rows ? *source.rows : options.rows;
  SourceFile file(source.path, options.threads,
                  {.type = source.type,
                   .row_limit = options.skip_bad_rows ? 0 : source.range.row_limit(),
                   .streamed = options.streamed});
  const Json row = first_row_of(file, rows.mapping);
  try {
    const Format format = format_of(row, rows);
    RowReader reader(format, rows, is_conversational(format, row, encoder), encoder);
    check_columns(file, row, reader);
    std::string key = key_of(file, format, rows, encoder);
    std::filesystem::path folder = options.cache / key.substr(0, 32);
    return {.file = std::move(file),
            .source = source,
            .format = format,
            .reader = std::move(reader),
            .key = std::move(key),
            .folder = std::move(folder),
            .vocabulary = rows.vocabulary,
            .mapping = rows.mapping};
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("{}: {}{}", source.path, e.what(), without(file)));
  }
}

}  // namespace mgpu::data
