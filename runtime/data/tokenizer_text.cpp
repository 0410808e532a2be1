#include "runtime/data/tokenizer_text.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/data/column_template.hpp"
#include "runtime/data/parallel.hpp"
#include "runtime/data/source_file.hpp"

namespace mgpu::data {
namespace {

// Reads the text of rows of one format.
class RowText {
 public:
  RowText(Format format, const RowOptions& options) : format_(format), options_(options) {
    if (format == Format::tokens)
      throw std::runtime_error(
          "the rows contain token ids, from which no tokenizer can be trained; set tokenizer_path "
          "to the tokenizer that they were made with");
    if (format == Format::columns) template_.emplace(options.prompt_template);
  }

  void read(const Json& row, text::TokenizerText& text) const {
    if (template_) return text.read(template_->fill(row));
    for (const auto& [column, value] : row.items())
      if (uses(column)) read_value(value, text);
  }

 private:
  bool uses(std::string_view column) const {
    const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), column) != names.end();
    };
    switch (format_) {
      case Format::text:
        return column == options_.text_field;
      case Format::prompt_completion:
        return is_one_of({"prompt", "completion"});
      case Format::messages:
        return column == "messages";
      case Format::sharegpt:
        return column == "conversations";
      case Format::alpaca:
        return is_one_of({"instruction", "input", "output", "system", "history"});
      case Format::tokens:
      case Format::columns:
        break;
    }
    return false;
  }

  // Every string inside, but the roles of messages.
  static void read_value(const Json& value, text::TokenizerText& text) {
    if (value.is_string()) return text.read(value.get_ref<const std::string&>());
    if (!value.is_structured()) return;
    for (const auto& [key, inner] : value.items())
      if (!value.is_object() || (key != "role" && key != "from")) read_value(inner, text);
  }

  Format format_;
  RowOptions options_;
  std::optional<ColumnTemplate> template_;
};

bool contains_rows(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".json");
}

// The format of the first row that can be read.
std::optional<Format> format_in(const SourceFile& file, const RowOptions& options) {
  for (std::size_t piece = 0; piece < file.pieces(); ++piece) {
    for (std::string_view rest = file.piece(piece); !rest.empty();) {
      const auto line = take_line(rest);
      if (blank(line)) continue;
      try {
        return format_of(parse_row(line), options);
      } catch (const RowError&) {
        continue;  // reported when the rows are read
      }
    }
  }
  return std::nullopt;
}

std::optional<RowText> open_rows(const SourceFile& file, const TextOptions& options) {
  if (!contains_rows(file.path())) return std::nullopt;
  try {
    const auto format = format_in(file, options.rows);
    return RowText(format.value_or(Format::text), options.rows);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(fmt::format("{}: {}", file.path(), e.what()));
  }
}

void read_piece(const SourceFile& file, const std::optional<RowText>& rows, std::size_t piece,
                bool skip_bad_rows, text::TokenizerText& text) {
  std::string_view rest = file.piece(piece);
  for (auto number = file.first_line(piece); !rest.empty(); ++number) {
    const auto* const begin = rest.data();
    const auto line = take_line(rest);
    try {
      if (!rows)
        text.read({begin, static_cast<std::size_t>(rest.data() - begin)});  // with its line feed
      else if (!blank(line))
        rows->read(parse_row(line), text);
    } catch (const std::runtime_error& e) {
      if (rows && skip_bad_rows) continue;
      throw std::runtime_error(
          fmt::format("{}:{}: {}{}", file.path(), number, e.what(),
                      rows ? "" : "; convert the file to UTF-8, for example with iconv -t UTF-8"));
    }
  }
}

}  // namespace

text::TokenizerText read_text(const std::vector<std::string>& paths, text::TokenizerKind kind,
                              const TextOptions& options) {
  const auto threads =
      static_cast<std::size_t>(options.threads > 0 ? options.threads : usable_cores());
  text::TokenizerText all(kind);
  for (const auto& path : paths) {
    const SourceFile file(path, options.threads);
    const auto rows = open_rows(file, options);
    std::vector<std::unique_ptr<text::TokenizerText>> parts(std::min(threads, file.pieces()));
    std::atomic<std::size_t> next{0};
    for_each_index(parts.size(), static_cast<int>(threads), [&](std::size_t thread) {
      auto& part = parts[thread];
      part = std::make_unique<text::TokenizerText>(kind);
      for (std::size_t piece = next++; piece < file.pieces(); piece = next++)
        read_piece(file, rows, piece, options.skip_bad_rows, *part);
    });
    for (const auto& part : parts) all.add(*part);
  }
  if (all.words().size() == 0)
    throw std::runtime_error(fmt::format("cannot train a tokenizer: {} contain{} no text",
                                         fmt::join(paths, ", "), paths.size() == 1 ? "s" : ""));
  return all;
}

}  // namespace mgpu::data
