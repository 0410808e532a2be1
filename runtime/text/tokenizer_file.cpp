#include "runtime/text/tokenizer_file.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/json_fields.hpp"

namespace mgpu::text {

// Handles the events of the JSON parser. Keeping half a million strings of a vocabulary as JSON
// values would be slow.
class TokenizerFileReader {
 public:
  using json = nlohmann::json;
  explicit TokenizerFileReader(TokenizerFile& file) : file_(file) {}

  bool null() { return value(json(nullptr)); }
  bool boolean(bool x) { return value(json(x)); }
  bool number_integer(std::int64_t x) { return number(json(x), static_cast<double>(x)); }
  bool number_float(double x, const std::string&) { return number(json(x), x); }
  bool binary(json::binary_t&) { return false; }

  bool number_unsigned(std::uint64_t x) {
    if (mode_ != Mode::vocabulary) return number(json(x), static_cast<double>(x));
    // The vocabulary checks the range.
    file_.vocabulary_.add(std::move(token_), x > INT64_MAX ? -1 : static_cast<std::int64_t>(x));
    return true;
  }

  bool string(std::string& x) {
    if (mode_ == Mode::pieces && depth_ == kPieceDepth && fields_ == 0) {
      token_ = std::move(x);
      fields_ = 1;
      return true;
    }
    if (mode_ != Mode::merges) return value(json(std::move(x)));
    return depth_ == kMergesDepth ? merge_line(x) : merge_half(x);
  }

  bool key(std::string& x) {
    if (mode_ == Mode::vocabulary) {
      token_ = std::move(x);
      return true;
    }
    if (depth_ == 1) top_key_ = x;
    if (depth_ == 2) second_key_ = x;
    key_ = std::move(x);
    return true;
  }

  bool start_object(std::size_t) {
    if (depth_ == 2 && top_key_ == "model" && second_key_ == "vocab") {
      mode_ = Mode::vocabulary;
      ++depth_;
      return true;
    }
    return open(json::object());
  }

  bool start_array(std::size_t) {
    if (depth_ == 2 && top_key_ == "model" && second_key_ == "vocab") {
      place(json::array());  // shows that there was a list
      mode_ = Mode::pieces;
      ++depth_;
      return true;
    }
    if (mode_ == Mode::pieces && depth_ == kPieceDepth - 1) {
      ++depth_;
      fields_ = 0;
      return true;
    }
    if (depth_ == 2 && top_key_ == "model" && second_key_ == "merges") {
      mode_ = Mode::merges;
      ++depth_;
      return true;
    }
    if (mode_ == Mode::merges && depth_ == kMergesDepth) {
      ++depth_;
      halves_ = 0;
      return true;
    }
    return open(json::array());
  }

  bool end_object() { return close(); }
  bool end_array() {
    if (mode_ == Mode::pieces && depth_ == kPieceDepth && fields_ != 2) refuse_piece();
    if (mode_ == Mode::merges && depth_ > kMergesDepth && halves_ != 2) refuse_merge();
    return close();
  }

  bool parse_error(std::size_t at, const std::string&, const json::exception& error) {
    throw rendezvous::InputError(fmt::format("invalid JSON at byte {}: {}", at, error.what()));
  }

 private:
  enum class Mode { rest, vocabulary, pieces, merges };
  static constexpr std::size_t kMergesDepth = 3;
  static constexpr std::size_t kPieceDepth = 4;
  static constexpr std::size_t kDeepest = 64;

  [[noreturn]] void refuse_merge() const {
    throw rendezvous::InputError(
        fmt::format("merge {} must be \"left right\" or [\"left\", \"right\"]",
                    file_.merges_.size() - (depth_ > kMergesDepth && halves_ > 0 ? 1 : 0)));
  }

  [[noreturn]] void refuse_piece() const {
    throw rendezvous::InputError(
        fmt::format("piece {} of \"vocab\" must be [\"text\", score]",
                    file_.scores_.size() - (depth_ == kPieceDepth && fields_ == 2 ? 1 : 0)));
  }

  bool number(json&& x, double score) {
    if (mode_ != Mode::pieces || depth_ != kPieceDepth || fields_ != 1) return value(std::move(x));
    file_.vocabulary_.add(std::move(token_), static_cast<std::int64_t>(file_.scores_.size()));
    file_.scores_.push_back(score);
    fields_ = 2;
    return true;
  }

  bool merge_line(const std::string& line) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      refuse_merge();
    const std::size_t begin = file_.merge_text_.size();
    file_.merge_text_.append(line, 0, space).append(line, space + 1);
    file_.merges_.push_back({begin, begin + space, file_.merge_text_.size()});
    return true;
  }

  bool merge_half(const std::string& half) {
    if (++halves_ > 2) refuse_merge();
    const std::size_t begin = file_.merge_text_.size();
    file_.merge_text_ += half;
    const std::size_t end = file_.merge_text_.size();
    if (halves_ == 1) {
      file_.merges_.push_back({begin, end, end});
    } else {
      file_.merges_.back().end = end;
    }
    return true;
  }

  json* place(json&& x) {
    if (mode_ == Mode::vocabulary) {
      throw rendezvous::InputError(fmt::format("the id of token \"{}\" must be a number", token_));
    }
    if (mode_ == Mode::pieces) refuse_piece();
    if (mode_ == Mode::merges) refuse_merge();
    if (open_.empty()) {
      file_.rest_ = std::move(x);
      return &file_.rest_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(x));
      return &parent.back();
    }
    return &(parent[key_] = std::move(x));
  }

  bool value(json&& x) {
    place(std::move(x));
    return true;
  }

  bool open(json&& x) {
    if (++depth_ > kDeepest) throw rendezvous::InputError("JSON is nested too deeply");
    open_.push_back(place(std::move(x)));
    return true;
  }

  bool close() {
    --depth_;
    if (mode_ == Mode::rest) {
      open_.pop_back();
    } else if (depth_ < kMergesDepth) {
      mode_ = Mode::rest;
    }
    return true;
  }

  TokenizerFile& file_;
  Mode mode_ = Mode::rest;
  std::size_t depth_ = 0;
  std::vector<json*> open_;  // the open containers, outermost first
  std::string key_, top_key_, second_key_;
  std::string token_;  // the token whose id or score comes next
  int halves_ = 0;     // of the merge, read so far
  int fields_ = 0;     // of the piece, read so far
};

TokenizerFile::TokenizerFile(std::string_view json) {
  vocabulary_.limit_ids(json.size());
  TokenizerFileReader reader(*this);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!rest_.is_object()) throw rendezvous::InputError("must be an object");
}

bool TokenizerFile::has_no_tokens() const {
  const auto model = rest_.find("model"), added = rest_.find("added_tokens");
  if (model == rest_.end() || !model->is_object()) return false;
  return vocabulary_.end() == 0 && (added == rest_.end() || added->empty());
}

std::vector<Bpe::Merge> TokenizerFile::merges() const {
  std::vector<Bpe::Merge> views;
  views.reserve(merges_.size());
  const std::string_view all = merge_text_;
  for (const auto& [begin, middle, end] : merges_) {
    views.emplace_back(all.substr(begin, middle - begin), all.substr(middle, end - middle));
  }
  return views;
}

BpeOptions read_bpe_options(const nlohmann::json& model) {
  if (!model.is_object()) throw rendezvous::InputError("\"model\" must be an object");
  if (model.contains("type") && type_of(model, "model") != "BPE") {
    refuse_type("model", type_of(model, "model"));
  }
  if (const auto dropout = model.find("dropout"); dropout != model.end()) {
    if (!dropout->is_null() && *dropout != 0) {
      throw rendezvous::InputError("model BPE with dropout is not supported");
    }
  }
  for (const char* const name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = model.find(name);
    if (affix != model.end() && !affix->is_null() && *affix != "") {
      throw rendezvous::InputError(fmt::format("model BPE with {} is not supported", name));
    }
  }
  for (const char* const name : {"vocab", "merges"}) {
    if (model.contains(name)) {
      throw rendezvous::InputError(fmt::format("\"{}\" of model BPE has a wrong type", name));
    }
  }
  BpeOptions options{.fuse_unk = bool_field(model, "fuse_unk", false),
                     .byte_fallback = bool_field(model, "byte_fallback", false),
                     .ignore_merges = bool_field(model, "ignore_merges", false)};
  if (const auto unk = model.find("unk_token"); unk != model.end() && !unk->is_null()) {
    options.unk_token = string_field(model, "unk_token");
  }
  return options;
}

UnigramOptions read_unigram_options(const nlohmann::json& model) {
  if (!model.contains("vocab"))
    throw rendezvous::InputError(R"("vocab" of model Unigram must be a list of ["text", score])");
  UnigramOptions options{.unk_id = {}, .byte_fallback = bool_field(model, "byte_fallback", false)};
  const auto unk = model.find("unk_id");
  if (unk == model.end() || unk->is_null()) return options;
  if (!unk->is_number_unsigned() || *unk > Vocabulary::kHighestId)
    throw rendezvous::InputError("\"unk_id\" of model Unigram must be the id of a piece");
  options.unk_id = unk->get<std::int32_t>();
  return options;
}

bool is_unigram(const nlohmann::json& model) {
  if (!model.is_object()) return false;
  if (model.contains("type")) return type_of(model, "model") == "Unigram";
  return model.contains("vocab");  // only a list of pieces is left there
}

// Where the text has such a token's beginning, the whole beginning is compared.
constexpr std::size_t kLongestAddedToken = 4096;

std::vector<AddedToken> read_added_tokens(const nlohmann::json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) throw rendezvous::InputError("\"added_tokens\" must be a list");
  for (const auto& each : list) {
    if (!each.is_object()) throw rendezvous::InputError("an added token must be an object");
    const std::string content = string_field(each, "content");
    if (content.size() > kLongestAddedToken)
      throw rendezvous::InputError(fmt::format("an added token has {} bytes, more than {}",
                                               content.size(), kLongestAddedToken));
    const auto id = each.find("id");
    if (id == each.end() || !id->is_number_unsigned() || *id > Vocabulary::kHighestId) {
      throw rendezvous::InputError(fmt::format("added token \"{}\" must have an id from 0 to {}",
                                               content, Vocabulary::kHighestId));
    }
    const bool special = bool_field(each, "special", false);
    tokens.push_back({.content = content,
                      .id = id->get<std::int32_t>(),
                      .single_word = bool_field(each, "single_word", false),
                      .lstrip = bool_field(each, "lstrip", false),
                      .rstrip = bool_field(each, "rstrip", false),
                      .normalized = bool_field(each, "normalized", !special),
                      .special = special});
  }
  return tokens;
}

}  // namespace mgpu::text
