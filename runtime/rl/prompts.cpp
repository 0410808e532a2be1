#include "runtime/rl/prompts.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "runtime/data/conversation.hpp"
#include "runtime/data/row.hpp"
#include "runtime/data/source_file.hpp"

namespace mgpu::rl {
namespace {

using data::Json;
using data::RowError;

const std::string* text_in(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) return nullptr;
  if (!found->is_string()) throw RowError(fmt::format("\"{}\" is no text", column));
  return found->get_ptr<const std::string*>();
}

class Reader {
 public:
  Reader(const PromptOptions& options, const data::Encoder& encoder)
      : options_(options), encoder_(encoder) {}

  Question read(const Json& row) const {
    if (options_.needs_solution && !row.contains("solution"))
      throw RowError("there is no \"solution\", which a reward needs");
    Question question;
    const auto prompt = row.find(options_.column);
    if (prompt != row.end() && prompt->is_array()) {
      converse(row, data::messages_of(row, options_.column), question);
    } else if (prompt != row.end()) {
      read_text(row, data::text_of(row, options_.column), false, question);
    } else {
      const auto* asked = text_in(row, "problem");
      if (asked == nullptr) asked = text_in(row, "question");
      if (asked == nullptr)
        throw RowError(fmt::format(
            "there is no \"{}\" (a text or a list of messages), \"problem\" or \"question\"",
            options_.column));
      read_text(row, *asked, true, question);
    }
    if (question.tokens.empty()) throw RowError("the prompt is empty");
    if (const auto size = static_cast<std::int64_t>(question.tokens.size());
        options_.longest > 0 && size > options_.longest)
      throw RowError(fmt::format("the prompt has {} tokens, and {} fit", size, options_.longest));
    question.row = row.dump(-1, ' ', false, Json::error_handler_t::replace);
    return question;
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

  std::string render(const Json& row, const Json& messages) const {
    if (!encoder_.has_template())
      throw RowError("the prompt is a conversation, and the model has no chat template");
    Json extra = options_.template_extra;
    extra.update(data::template_extra_of(row));
    return encoder_.render(messages, data::tools_of(row), true, extra);
  }

  void converse(const Json& row, const Json& said, Question& question) const {
    const auto messages = with_system(row, said);
    question.text = render(row, messages);
    question.tokens = encoder_.encode(question.text, false);
    question.messages = messages.dump();
  }

  // A plain prompt stays as it is, unless there is something to say before it.
  void read_text(const Json& row, const std::string& text, bool asked, Question& question) const {
    const bool chat = encoder_.has_template() && (asked || system_of(row) != nullptr);
    if (chat) {
      converse(row, Json::array({Json{{"role", "user"}, {"content", text}}}), question);
      return;
    }
    const auto* system = system_of(row);
    question.text = system == nullptr ? text : *system + "\n\n" + text;
    question.tokens = encoder_.encode(question.text, true);
  }

  const PromptOptions& options_;
  const data::Encoder& encoder_;
};

}  // namespace

Questions read_questions(const std::vector<train::DataSource>& sources,
                         const PromptOptions& options, const data::Encoder& encoder) {
  const Reader reader(options, encoder);
  Questions questions;
  for (const auto& source : sources) {
    data::refuse_other_formats(source.path);
    const data::SourceFile file(source.path, 0);
    data::SourceRange range{.first = static_cast<std::uint32_t>(questions.all.size()),
                            .weight = source.weight,
                            .index = questions.ranges.size()};
    std::uint64_t skipped = 0;
    for (std::size_t piece = 0; piece < file.pieces(); ++piece) {
      auto rest = file.piece(piece);
      for (auto number = file.first_line(piece); !rest.empty(); ++number) {
        const auto line = data::take_line(rest);
        if (data::blank(line)) continue;
        const auto where = fmt::format("{}:{}", source.path, number);
        try {
          questions.all.push_back(reader.read(data::parse_row(line)));
          questions.all.back().where = where;
        } catch (const std::runtime_error& e) {
          const auto text = fmt::format("{}: {}", where, e.what());
          if (!options.skip_bad_rows) throw std::runtime_error(text);
          if (++skipped == 1) questions.notes.push_back("skipped " + text);
        }
      }
    }
    range.count = static_cast<std::uint32_t>(questions.all.size()) - range.first;
    if (range.count == 0) throw std::runtime_error(source.path + " has no prompt");
    questions.notes.push_back(
        fmt::format("{}: {} prompts{}", source.path, range.count,
                    skipped > 0 ? fmt::format(", {} bad rows skipped", skipped) : ""));
    questions.ranges.push_back(range);
  }
  return questions;
}

}  // namespace mgpu::rl
