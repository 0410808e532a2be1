#include "runtime/text/pre_tokenizer.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/json_fields.hpp"

namespace mgpu::text {
namespace {

// GPT-2's pattern, used by ByteLevel with use_regex.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Digits uses Unicode 17.
constexpr std::string_view kDigitPattern = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";

// Calls part(begin, end, match) for the matches and the text between them, in order.
template <class Each>
void for_each_part(const Pattern& pattern, std::string_view text, Each part) {
  std::size_t done = 0;
  const auto take = [&](const Match& match) {
    if (match.begin > done) part(done, match.begin, false);
    if (match.end > match.begin) part(match.begin, match.end, true);
    done = match.end;
  };
  if (pattern.regex) {
    for_each_match(*pattern.regex, text, take);
  } else {
    const std::string& literal = pattern.literal;
    for (std::size_t at = 0; (at = text.find(literal, at)) != std::string_view::npos;) {
      take({at, at + literal.size()});
      at += literal.size();
    }
  }
  if (done < text.size()) part(done, text.size(), false);
}

// Passes words on until they are longer than a text of this length may become: stages that add a
// mark to every word and split the result again would double the text each time.
class GrowthCheck final : public WordSink {
 public:
  GrowthCheck(WordSink& sink, std::size_t bytes) : sink_(sink), bytes_(bytes) {}
  void word(std::string_view text) override {
    passed_ += text.size();
    if (passed_ > longest_result(bytes_)) refuse_growth();
    sink_.word(text);
  }

 private:
  WordSink& sink_;
  std::size_t bytes_, passed_ = 0;
};

std::string marked(const Metaspace& metaspace, std::string_view text, bool at_start) {
  const std::string& mark = metaspace.mark;
  std::string changed;
  changed.reserve(text.size() + text.size() / 2 + mark.size());
  const bool prefixed = metaspace.prefix == Metaspace::Prefix::always ||
                        (metaspace.prefix == Metaspace::Prefix::first && at_start);
  if (prefixed && text.front() != ' ' && !text.starts_with(mark)) changed = mark;
  for (const char c : text) {
    if (c == ' ') {
      changed += mark;
    } else {
      changed.push_back(c);
    }
  }
  return changed;
}

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& description) {
  if (!description.is_null()) read(description);
}

void PreTokenizer::read(const nlohmann::json& description) {
  const std::string type = type_of(description, "pre_tokenizer");
  check_step_count(stages_.size(), "pre_tokenizer");
  if (byte_level_) {
    throw rendezvous::InputError(
        fmt::format("pre_tokenizer {} after ByteLevel is not supported", type));
  }
  if (type == "Sequence") {
    for (const auto& each : list_field(description, "pretokenizers")) read(each);
  } else if (type == "Split") {
    read_split(description);
  } else if (type == "ByteLevel") {
    read_byte_level(description);
  } else if (type == "Metaspace") {
    add_metaspace(description);
  } else if (type == "Digits") {
    const bool single = bool_field(description, "individual_digits", false);
    add_split(kDigitPattern, single ? Behavior::isolated : Behavior::contiguous);
  } else if (type == "Whitespace") {
    add_split(fmt::format("[{0}]+|[^{0}\\p{{White_Space}}]+", word_class()), Behavior::removed,
              true);
  } else if (type == "WhitespaceSplit") {
    add_split("\\s", Behavior::removed);
  } else {
    refuse_type("pre_tokenizer", type);
  }
}

void PreTokenizer::add_split(std::string_view pattern, Behavior behavior, bool invert) {
  Stage stage{.behavior = behavior, .invert = invert};
  stage.pattern.regex.emplace(pattern);
  stages_.push_back(std::move(stage));
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const nlohmann::json& description) {
  const std::string name = string_field(description, "behavior");
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::with_previous;
  if (name == "MergedWithNext") return Behavior::with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  throw rendezvous::InputError(fmt::format("split behavior {} is not supported", name));
}

void PreTokenizer::read_split(const nlohmann::json& description) {
  stages_.push_back({.pattern = read_pattern(description),
                     .behavior = behavior_of(description),
                     .invert = bool_field(description, "invert", false)});
}

void PreTokenizer::read_byte_level(const nlohmann::json& description) {
  if (bool_field(description, "add_prefix_space", true)) {
    stages_.push_back({.kind = Kind::prefix_space});
  }
  if (bool_field(description, "use_regex", true)) add_split(kGpt2, Behavior::isolated);
  byte_level_ = true;
}

void PreTokenizer::add_metaspace(const nlohmann::json& description) {
  Stage stage{.kind = Kind::metaspace, .metaspace = read_metaspace(description)};
  const std::string mark = stage.metaspace.mark;
  stages_.push_back(std::move(stage));
  if (bool_field(description, "split", true)) {
    stages_.push_back({.pattern = {.literal = mark}, .behavior = Behavior::with_next});
  }
}

void PreTokenizer::split(std::string_view text, bool at_start, WordSink& sink) const {
  if (text.empty()) return;
  GrowthCheck checked(sink, text.size());
  run(0, text, at_start, checked);
}

void PreTokenizer::run(std::size_t index, std::string_view text, bool at_start,
                       WordSink& sink) const {
  if (index == stages_.size()) return sink.word(text);
  const Stage& stage = stages_[index];
  std::string changed;
  switch (stage.kind) {
    case Kind::split: {
      const bool last = index + 1 == stages_.size();
      return cut(stage, text, [&](std::size_t begin, std::size_t end) {
        const std::string_view part = text.substr(begin, end - begin);
        return last ? sink.word(part) : run(index + 1, part, at_start && begin == 0, sink);
      });
    }
    case Kind::prefix_space:
      if (text.front() == ' ') return run(index + 1, text, at_start, sink);
      changed.reserve(text.size() + 1);
      changed.append(" ").append(text);
      return run(index + 1, changed, at_start, sink);
    case Kind::metaspace:
      changed = marked(stage.metaspace, text, at_start);
      return run(index + 1, changed, at_start, sink);
  }
}

// Calls emit(begin, end) for the words that a split leaves, in order.
template <class Emit>
void PreTokenizer::cut(const Stage& stage, std::string_view text, Emit emit) {
  if (stage.behavior == Behavior::isolated || stage.behavior == Behavior::removed) {
    const bool keep_matches = stage.behavior == Behavior::isolated || stage.invert;
    const bool keep_others = stage.behavior == Behavior::isolated || !stage.invert;
    return for_each_part(stage.pattern, text, [&](std::size_t begin, std::size_t end, bool match) {
      if (match ? keep_matches : keep_others) emit(begin, end);
    });
  }
  std::vector<Part> parts;
  for_each_part(stage.pattern, text, [&](std::size_t begin, std::size_t end, bool match) {
    parts.push_back({begin, end, match != stage.invert});
  });
  join(stage.behavior, parts);
  for (const Part& part : parts) emit(part.begin, part.end);
}

void PreTokenizer::join(Behavior behavior, std::vector<Part>& parts) {
  const bool backwards = behavior == Behavior::with_next;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Part> joined;
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        behavior == Behavior::contiguous ? part.match == previous : part.match && !previous;
    previous = part.match;
    if (joins && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, part.begin);
      joined.back().end = std::max(joined.back().end, part.end);
    } else {
      joined.push_back(part);
    }
  }
  if (backwards) std::reverse(joined.begin(), joined.end());
  parts = std::move(joined);
}

}  // namespace mgpu::text
