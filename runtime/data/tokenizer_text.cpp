#include "runtime/data/tokenizer_text.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/column_template.hpp"
#include "runtime/data/source_file.hpp"

namespace mgpu::data {
namespace {

// Reads the text of rows of one format.
class RowText {
 public:
  RowText(Format format, const RowOptions& options) : format_(format), options_(options) {
    if (format == Format::tokens)
      throw rendezvous::InputError(
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
      case Format::segments:
        return column == "segments";
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

// Files whose names tell nothing are plain text too.
FileOptions options_of(const TextFile& file) {
  return {.type = has_known_ending(file.path) || !file.type.empty() ? file.type : "text"};
}

// The format of the first row that can be read.
std::optional<Format> format_in(const SourceFile& file, const RowOptions& options) {
  std::optional<Format> format;
  file.for_each_row([&](std::uint64_t, const Rows& row) {
    try {
      format = format_of(mapped_row(options.mapping, row.parse()), options);
    } catch (const RowError&) {  // reported when the rows are read
    }
    return !format;
  });
  return format;
}

std::optional<RowText> open_rows(const SourceFile& file, const RowOptions& options) {
  if (file.format().kind == FileKind::text) return std::nullopt;
  try {
    return RowText(format_in(file, options).value_or(Format::text), options);
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("{}: {}", file.path(), e.what()));
  }
}

void read_rows(const SourceFile& file, const RowText& rows, const Block& block,
               const RowOptions& options, bool skip_bad_rows, text::TokenizerText& text) {
  for (Rows row(file.syntax(), block.text); row.next();) {
    try {
      rows.read(mapped_row(options.mapping, row.parse()), text);
    } catch (const std::runtime_error& e) {
      if (skip_bad_rows) continue;
      rendezvous::throw_like(
          e, fmt::format("{}:{}: {}", file.path(), block.first + row.offset(), e.what()));
    }
  }
}

void read_lines(const SourceFile& file, const Block& block, text::TokenizerText& text) {
  std::string_view rest = block.text;
  for (auto number = block.first; !rest.empty(); ++number) {
    const auto* const begin = rest.data();
    take_line(rest);
    try {
      text.read({begin, static_cast<std::size_t>(rest.data() - begin)});  // with its line feed
    } catch (const std::runtime_error& e) {
      rendezvous::throw_like(
          e, fmt::format("{}:{}: {}; convert the file to UTF-8, for example with iconv -t UTF-8",
                         file.path(), number, e.what()));
    }
  }
}

// Texts that threads add to, one at a time each.
class Parts {
 public:
  explicit Parts(text::TokenizerKind kind) : kind_(kind) {}

  std::unique_ptr<text::TokenizerText> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<text::TokenizerText>(kind_);
    auto part = std::move(free_.back());
    free_.pop_back();
    return part;
  }
  void give_back(std::unique_ptr<text::TokenizerText> part) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(part));
  }
  const std::vector<std::unique_ptr<text::TokenizerText>>& all() const { return free_; }

 private:
  text::TokenizerKind kind_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<text::TokenizerText>> free_;
};

}  // namespace

text::TokenizerText read_text(const std::vector<TextFile>& files, text::TokenizerKind kind,
                              const TextOptions& options) {
  text::TokenizerText all(kind);
  for (const auto& each : files) {
    const SourceFile file(each.path, options.threads, options_of(each));
    const auto rows = open_rows(file, each.rows);
    Parts parts(kind);
    for_each_block(
        file, options.threads, [](std::size_t) { return true; },
        [&](const Block& block) {
          auto part = parts.take();
          rows ? read_rows(file, *rows, block, each.rows, options.skip_bad_rows, *part)
               : read_lines(file, block, *part);
          parts.give_back(std::move(part));
        });
    for (const auto& part : parts.all()) all.add(*part);
  }
  std::vector<std::string_view> paths;
  for (const auto& each : files) paths.push_back(each.path);
  if (all.words().size() == 0)
    throw rendezvous::InputError(fmt::format("cannot train a tokenizer: {} contain{} no text",
                                             fmt::join(paths, ", "), paths.size() == 1 ? "s" : ""));
  return all;
}

}  // namespace mgpu::data
