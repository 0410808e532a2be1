#include "runtime/data/format.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

namespace {

struct Name {
  std::string_view name;
  Format format;
};
// The first name of a format is the one used in messages.
constexpr std::array kNames = {
    Name{"tokens", Format::tokens},
    Name{"columns", Format::columns},
    Name{"prompt_completion", Format::prompt_completion},
    Name{"messages", Format::messages},
    Name{"sharegpt", Format::sharegpt},
    Name{"text", Format::text},
    Name{"alpaca", Format::alpaca},
    Name{"input_output", Format::segments},
    Name{"input_ids", Format::tokens},
    Name{"tokenized", Format::tokens},
    Name{"pretokenized", Format::tokens},
    Name{"pretokenised", Format::tokens},
    Name{"chat", Format::messages},
    Name{"chatml", Format::messages},
    Name{"conversational", Format::messages},
    Name{"language_modeling", Format::text},
};

constexpr const char* kFormats =
    "tokens (input_ids, labels), prompt_completion (prompt, completion), messages, sharegpt "
    "(conversations), text, alpaca (instruction, output), input_output (segments)";

Format named(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  const auto found =
      std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.name == name; });
  if (found == kNames.end())
    throw rendezvous::InputError(fmt::format(
        "unknown dataset format {}; need one of auto, columns (with prompt_template), {}",
        printable(name), kFormats));
  return found->format;
}

bool has_from_key(const Json& conversations) {
  return conversations.is_array() && !conversations.empty() && conversations[0].is_object() &&
         conversations[0].contains("from");
}

}  // namespace

std::string_view name_of(Format format) {
  return std::find_if(kNames.begin(), kNames.end(),
                      [&](const Name& n) { return n.format == format; })
      ->name;
}

Format format_of(const Json& first_row, const RowOptions& options) {
  if (options.format != "auto") return named(options.format);
  if (options.mapping.makes_prompts()) return Format::prompt_completion;
  const auto has = [&](const std::string& column) { return first_row.contains(column); };
  if (has("input_ids")) return Format::tokens;
  if (!options.prompt_template.empty()) return Format::columns;
  if (has("prompt") && has("completion")) return Format::prompt_completion;
  if (has("messages")) return Format::messages;
  if (has("conversations"))
    return has_from_key(first_row["conversations"]) ? Format::sharegpt : Format::messages;
  if (has("segments")) return Format::segments;
  if (has(options.text_field)) return Format::text;
  if (has("instruction") && has("output")) return Format::alpaca;

  throw rendezvous::InputError(
      fmt::format("cannot detect the dataset format from the columns {}; the formats are {}; for "
                  "other columns name them under columns, set prompt_template, such as "
                  "\"{{question}} {{answer}}\", or set dataset_text_field to the text column",
                  column_names(first_row), kFormats));
}

}  // namespace mgpu::data
