#include "runtime/rl/prompts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/conversation.hpp"
#include "runtime/data/row.hpp"
#include "runtime/data/source_file.hpp"
#include "runtime/train/row_sources.hpp"

namespace mgpu::rl {
namespace {

using data::Json;
using data::RowError;

constexpr std::size_t kShownName = 72;

const std::string* text_in(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) return nullptr;
  if (!found->is_string()) throw RowError(fmt::format("\"{}\" is not text", column));
  return found->get_ptr<const std::string*>();
}

class Reader {
 public:
  Reader(const PromptOptions& options, const data::Encoder& encoder)
      : options_(options), encoder_(encoder) {}

  Prompt read(const Json& row) const {
    if (options_.needs_solution && !row.contains("solution"))
      throw RowError("the row has no \"solution\" column, which a reward function needs");
    Prompt prompt;
    const bool named = !options_.column.empty();
    const std::string column = named ? options_.column : "prompt";
    if (const auto found = row.find(column); found == row.end()) {
      read_question(row, prompt);
    } else if (found->is_array()) {
      read_conversation(row, data::messages_of(row, column), prompt);
    } else {
      read_text(row, data::text_of(row, column), named, prompt);
    }
    if (prompt.tokens.empty()) throw RowError("the prompt is empty");
    if (const auto size = static_cast<std::int64_t>(prompt.tokens.size());
        options_.longest > 0 && size > options_.longest)
      throw RowError(
          fmt::format("the prompt has {} tokens, but at most {} fit", size, options_.longest));
    read_target(row, prompt);
    prompt.row = row.dump(-1, ' ', false, Json::error_handler_t::replace);
    return prompt;
  }

 private:
  const std::string* system_of(const Json& row) const {
    for (const char* column : {"system", "system_prompt"})
      if (const auto* text = text_in(row, column)) return text;
    return options_.system_prompt.empty() ? nullptr : &options_.system_prompt;
  }

  Json with_system(const Json& row, Json messages) const {
    const auto* system = system_of(row);
    if (system == nullptr || messages.front().value("role", "") == "system") return messages;
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *system}});
    return messages;
  }

  void read_target(const Json& row, Prompt& prompt) const {
    prompt.target = rewards::target_in(row);
    if (prompt.target.empty() && (options_.needs_target || options_.items != nullptr))
      throw RowError(fmt::format("the row names no item to find; it needs one of the columns {}",
                                 fmt::join(rewards::kTargetColumns, ", ")));
    if (options_.items != nullptr && !options_.items->find(prompt.target))
      throw RowError(fmt::format("the item to find, {}, is not in {}",
                                 data::printable(prompt.target, kShownName),
                                 options_.items->path()));
  }

  std::string render(const Json& row, const Json& messages) const {
    if (!encoder_.has_template())
      throw RowError("the prompt is a conversation, but the model has no chat template");
    Json extra = options_.template_extra;
    extra.update(data::template_extra_of(row));
    return encoder_.render(messages, data::tools_of(row), true, extra);
  }

  void read_question(const Json& row, Prompt& prompt) const {
    if (!options_.column.empty())
      throw RowError(fmt::format("the row has no \"{}\" column, which dataset_prompt_column names",
                                 data::printable(options_.column)));
    const auto* text = text_in(row, "problem");
    if (text == nullptr) text = text_in(row, "question");
    if (text == nullptr)
      throw RowError(
          "the row has no \"prompt\" (text or a list of messages), \"problem\" or \"question\"");
    read_text(row, *text, true, prompt);
  }

  void read_conversation(const Json& row, const Json& given, Prompt& prompt) const {
    const auto messages = with_system(row, given);
    prompt.text = render(row, messages);
    prompt.tokens = encoder_.encode(prompt.text, false);
    prompt.messages = messages.dump();
  }

  // A plain-text prompt is used unchanged unless a system prompt goes before it.
  void read_text(const Json& row, const std::string& text, bool is_user_message,
                 Prompt& prompt) const {
    const bool chat = encoder_.has_template() && (is_user_message || system_of(row) != nullptr);
    if (chat) {
      read_conversation(row, Json::array({Json{{"role", "user"}, {"content", text}}}), prompt);
      return;
    }
    const auto* system = system_of(row);
    prompt.text = system == nullptr ? text : *system + "\n\n" + text;
    prompt.tokens = encoder_.encode(prompt.text, true);
  }

  const PromptOptions& options_;
  const data::Encoder& encoder_;
};

// Keeps the prompts of the last dataset, whose last file is `last`, that its slice selects.
void keep_range(const std::vector<train::DataSource>& sources, const data::RowRange& range,
                std::size_t last, PromptSet& prompts) {
  std::size_t file = last;
  while (file > 0 && sources[file - 1].dataset == sources[last].dataset) --file;
  const std::uint64_t start = prompts.ranges[file].first;
  std::pair<std::uint64_t, std::uint64_t> kept;
  try {
    kept = range.of(prompts.all.size() - start);
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("{}: {}", sources[last].path, e.what()));
  }
  const auto from = start + kept.first, to = start + kept.second;
  prompts.notes.push_back(
      fmt::format("{}: {} prompts are left by the slice of the split or "
                  "max_samples",
                  sources[last].path, kept.second - kept.first));
  for (; file <= last; ++file) {
    auto& rows = prompts.ranges[file];
    const std::uint64_t end = rows.first + rows.count;
    const auto first = std::clamp<std::uint64_t>(rows.first, from, to);
    rows.count = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(end, from, to) - first);
    rows.first = static_cast<std::uint32_t>(first - kept.first);
  }
  const auto at = [&](std::uint64_t i) {
    return prompts.all.begin() + static_cast<std::ptrdiff_t>(i);
  };
  prompts.all.erase(at(to), prompts.all.end());
  prompts.all.erase(at(start), at(from));
  if (from == to) throw rendezvous::InputError(sources[last].path + " contains no prompts");
}

}  // namespace

PromptSet read_prompts(const std::vector<train::DataSource>& sources, const PromptOptions& options,
                       const data::Encoder& encoder) {
  const Reader reader(options, encoder);
  PromptSet prompts;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& source = sources[i];
    const auto range = train::row_range(source);
    const data::SourceFile file(source.path, 0,
                                {source.file_type, options.skip_bad_rows ? 0 : range.row_limit()});
    const auto mapping = train::row_options({}, source, 0).mapping;
    data::SourceRange rows{.first = static_cast<std::uint32_t>(prompts.all.size()),
                           .weight = source.weight,
                           .index = prompts.ranges.size()};
    std::uint64_t skipped = 0;
    file.for_each_row([&](std::uint64_t number, const data::Rows& row) {
      const auto where = fmt::format("{}:{}", source.path, number);
      try {
        prompts.all.push_back(reader.read(data::mapped_row(mapping, row.parse())));
        prompts.all.back().where = where;
      } catch (const std::runtime_error& e) {
        const auto text = fmt::format("{}: {}", where, e.what());
        if (!options.skip_bad_rows) throw rendezvous::InputError(text);
        if (++skipped == 1) prompts.notes.push_back("skipped " + text);
      }
      return true;
    });
    rows.count = static_cast<std::uint32_t>(prompts.all.size()) - rows.first;
    if (rows.count == 0) throw rendezvous::InputError(source.path + " contains no prompts");
    prompts.notes.push_back(
        fmt::format("{}: {} prompts{}", source.path, rows.count,
                    skipped > 0 ? fmt::format(", {} bad rows skipped", skipped) : ""));
    prompts.ranges.push_back(rows);
    prompts.digests.push_back(file.digest());
    const bool is_last = i + 1 == sources.size() || sources[i + 1].dataset != source.dataset;
    if (is_last && !range.is_all()) keep_range(sources, range, i, prompts);
  }
  return prompts;
}

}  // namespace mgpu::rl
