#include "runtime/data/example.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/data/conversation.hpp"

namespace mgpu::data {

namespace {

std::int32_t id_in(const Json& value, const char* column, std::int64_t vocabulary) {
  const std::int64_t limit = vocabulary > 0 ? vocabulary : std::int64_t{1} << 31;
  if (!value.is_number_integer())
    throw RowError(fmt::format("\"{}\" must contain only integers", column));
  const auto id = value.get<std::int64_t>();
  if (id < 0 || id >= limit || (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63))
    throw RowError(fmt::format("\"{}\" contains {}; ids must be from 0 to {}", column, value.dump(),
                               limit - 1));
  return static_cast<std::int32_t>(id);
}

const Json& list_in(const Json& row, const char* column) {
  const auto found = row.find(column);
  if (found == row.end() || !found->is_array())
    throw RowError(fmt::format("the column \"{}\" is {}", column,
                               found == row.end() ? "missing" : "not a list"));
  return *found;
}

void check_lengths(std::size_t ids, std::size_t others, const char* column) {
  if (ids != others)
    throw RowError(fmt::format("\"{}\" has {} entries, but input_ids has {}", column, others, ids));
}

// Removes the label of every token whose entry in the column of zeros and ones is 0.
void apply_mask_column(const Json& row, const char* column, Example& example) {
  const Json& mask = list_in(row, column);
  check_lengths(example.ids.size(), mask.size(), column);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0 && mask[i] != 1 && !mask[i].is_boolean())
      throw RowError(fmt::format("\"{}\" must contain only 0 and 1", column));
    if (mask[i] == 0 || mask[i] == false) example.labels[i] = kNoTarget;
  }
}

void mask_unmarked(const std::vector<bool>& marked, Example& example) {
  for (std::size_t i = 0; i < example.labels.size(); ++i)
    if (!marked[i]) example.labels[i] = kNoTarget;
}

bool has_value(const Json& row, const char* column) {
  const auto found = row.find(column);
  return found != row.end() && !found->is_null();
}

Example train_on_all(std::vector<std::int32_t> ids) {
  Example example{.ids = std::move(ids)};
  example.labels = example.ids;
  return example;
}

}  // namespace

bool is_conversational(Format format, const Json& row, const Encoder& encoder) {
  if (format == Format::messages || format == Format::sharegpt) return true;
  if (format == Format::alpaca) return encoder.has_template();
  return format == Format::prompt_completion && row.contains("prompt") && row["prompt"].is_array();
}

RowReader::RowReader(Format format, RowOptions options, bool conversational, const Encoder& encoder)
    : format_(format),
      options_(std::move(options)),
      conversational_(conversational),
      encoder_(encoder),
      eos_(encoder.eos()),
      writes_tools_(encoder.template_names("tools")),
      writes_tool_calls_(encoder.template_names("tool_calls")) {
  if (conversational_ && !encoder_.has_template())
    throw rendezvous::InputError(
        "its rows are conversations, but the tokenizer has no chat template; set chat_template");
  if (options_.assistant_only_loss && !conversational_ && format_ != Format::tokens &&
      format_ != Format::segments)
    throw rendezvous::InputError(
        fmt::format("assistant_only_loss requires conversations, but its rows have the format {}",
                    name_of(format_)));
  if (format_ == Format::columns) {
    if (options_.prompt_template.empty())
      throw rendezvous::InputError("dataset_format columns requires prompt_template");
    template_.emplace(options_.prompt_template);
  }
  const bool one_text =
      format_ == Format::messages || format_ == Format::sharegpt || format_ == Format::text;
  if (options_.completion_only_loss.value_or(false) && one_text)
    notes_.push_back(
        fmt::format("completion_only_loss has no effect: rows of format {} have no completion",
                    name_of(format_)));
  if (!conversational_ && format_ != Format::tokens && format_ != Format::segments && eos_.empty())
    notes_.emplace_back("the tokenizer has no eos token: none is appended to texts");
  if (format_ == Format::sharegpt && options_.map_sharegpt_roles)
    notes_.emplace_back("ShareGPT's roles human and gpt are read as user and assistant");
}

Example RowReader::read(const Json& row) const {
  switch (format_) {
    case Format::tokens:
      return read_tokens(row);
    case Format::text:
      return read_text(text_of(row, options_.text_field));
    case Format::columns:
      if (row.contains("completion") && !template_->names("completion"))
        return read_pair(template_->fill(row), text_of(row, "completion"));
      return read_text(template_->fill(row));
    case Format::messages:
      return read_chat(row,
                       messages_of(row, row.contains("messages") ? "messages" : "conversations"));
    case Format::sharegpt:
      return read_chat(row, sharegpt_messages(row, options_.map_sharegpt_roles));
    case Format::segments:
      return read_segments(row);
    case Format::alpaca:
      if (!conversational_) return read_pair(alpaca_prompt(row), text_of(row, "output"));
      {
        const Turns turns = alpaca_turns(row);
        return read_chat_pair(row, turns.prompt, turns.completion);
      }
    case Format::prompt_completion:
      if (conversational_)
        return read_chat_pair(row, messages_of(row, "prompt"), messages_of(row, "completion"));
      return read_pair(text_of(row, "prompt"), text_of(row, "completion"));
  }
  throw std::logic_error("a format without a reader");
}

Example RowReader::read_tokens(const Json& row) const {
  const Json& ids = list_in(row, "input_ids");
  Example example;
  example.ids.reserve(ids.size());
  for (const Json& id : ids) example.ids.push_back(id_in(id, "input_ids", options_.vocabulary));
  example.labels = example.ids;

  if (has_value(row, "labels")) {
    const Json& labels = list_in(row, "labels");
    check_lengths(ids.size(), labels.size(), "labels");
    for (std::size_t i = 0; i < labels.size(); ++i)
      example.labels[i] =
          labels[i] == kNoTarget ? kNoTarget : id_in(labels[i], "labels", options_.vocabulary);
    return example;
  }
  if (has_value(row, "completion_mask") && options_.completion_only_loss.value_or(true))
    apply_mask_column(row, "completion_mask", example);
  if (has_value(row, "assistant_masks"))
    apply_mask_column(row, "assistant_masks", example);
  else if (options_.assistant_only_loss)
    throw RowError(
        "assistant_only_loss requires labels or assistant_masks in addition to input_ids");
  return example;
}

Example RowReader::read_text(std::string text) const {
  append_eos(text);
  return train_on_all(encoder_.encode(text, true));
}

Example RowReader::read_segments(const Json& row) const {
  Example example;
  for (const Json& segment : list_in(row, "segments")) {
    if (!segment.is_object() || !segment.contains("text") || !segment["text"].is_string() ||
        !segment.contains("label") || !segment["label"].is_boolean())
      throw RowError("every segment must have a \"text\", and a \"label\" that is true or false");
    const auto ids = encoder_.encode(segment["text"].get_ref<const std::string&>(), false);
    example.ids.insert(example.ids.end(), ids.begin(), ids.end());
    if (segment["label"].get<bool>() || !options_.completion_only_loss.value_or(true))
      example.labels.insert(example.labels.end(), ids.begin(), ids.end());
    else
      example.labels.resize(example.ids.size(), kNoTarget);
  }
  return example;
}

Example RowReader::read_pair(const std::string& prompt, std::string completion) const {
  append_eos(completion);
  Example example = train_on_all(encoder_.encode(prompt + completion, true));
  mask_prompt(encoder_.encode(prompt, true), example);
  return example;
}

Example RowReader::read_chat(const Json& row, const Json& messages) const {
  MarkedIds chat = encode_chat(row, messages);
  Example example = train_on_all(std::move(chat.ids));
  if (options_.assistant_only_loss) mask_unmarked(chat.marked, example);
  example.unwritten_tools = leaves_out_tools(row, messages);
  return example;
}

Example RowReader::read_chat_pair(const Json& row, const Json& prompt,
                                  const Json& completion) const {
  Json both = prompt;
  both.insert(both.end(), completion.begin(), completion.end());
  MarkedIds chat = encode_chat(row, both);
  Example example = train_on_all(std::move(chat.ids));
  if (options_.assistant_only_loss) mask_unmarked(chat.marked, example);
  const std::string alone = encoder_.render(prompt, tools_of(row), true, template_extra_of(row));
  mask_prompt(encoder_.encode(alone, false), example);
  example.unwritten_tools = leaves_out_tools(row, both);
  return example;
}

bool RowReader::leaves_out_tools(const Json& row, const Json& messages) const {
  if (!writes_tools_ && !tools_of(row).empty()) return true;
  return !writes_tool_calls_ &&
         std::any_of(messages.begin(), messages.end(), [](const Json& message) {
           const auto calls = message.find("tool_calls");
           return calls != message.end() && !calls->empty();
         });
}

// The ids of a conversation. `marked` is filled only with assistant_only_loss.
MarkedIds RowReader::encode_chat(const Json& row, const Json& messages) const {
  const Json tools = tools_of(row);
  const Json extra = template_extra_of(row);
  if (!options_.assistant_only_loss)
    return {.ids = encoder_.encode(encoder_.render(messages, tools, false, extra), false)};
  const Chat chat = encoder_.render_marked(messages, tools, extra);
  MarkedIds out = encoder_.encode_marked(chat.text, chat.assistant);
  if (std::find(out.marked.begin(), out.marked.end(), true) == out.marked.end())
    throw RowError(
        "assistant_only_loss: the chat template marks no assistant token: the row has no assistant "
        "turn, or the template has no {% generation %}");
  return out;
}

void RowReader::append_eos(std::string& text) const {
  if (!text.ends_with(eos_)) text += eos_;
}

// The completion starts where the ids of both together differ from those of the prompt alone.
void RowReader::mask_prompt(const std::vector<std::int32_t>& prompt, Example& example) const {
  const auto [left, _] =
      std::mismatch(prompt.begin(), prompt.end(), example.ids.begin(), example.ids.end());
  const auto common = static_cast<std::size_t>(left - prompt.begin());
  if (left != prompt.end())
    example.lost_prompt = printable(encoder_.decode(std::span(prompt).subspan(common)));
  if (options_.completion_only_loss.value_or(true))
    std::fill_n(example.labels.begin(), common, kNoTarget);
}

}  // namespace mgpu::data
