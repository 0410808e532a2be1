#include "runtime/text/tokenizer.hpp"

#include <algorithm>
#include <climits>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/added_tokens.hpp"
#include "runtime/text/bpe.hpp"
#include "runtime/text/decoder.hpp"
#include "runtime/text/json_splice.hpp"
#include "runtime/text/normalizer.hpp"
#include "runtime/text/post_processor.hpp"
#include "runtime/text/pre_tokenizer.hpp"
#include "runtime/text/tokenizer_config.hpp"
#include "runtime/text/tokenizer_file.hpp"
#include "runtime/text/unicode.hpp"
#include "runtime/text/unigram.hpp"

namespace mgpu::text {
namespace {

using nlohmann::json;

constexpr const char* kTokenizer = "tokenizer.json";

// How words become ids.
using Model = std::variant<Bpe, Unigram>;
using Workspace = std::variant<Bpe::Workspace, Unigram::Workspace>;

std::unique_ptr<Workspace> make_workspace(const Model& model) {
  if (std::holds_alternative<Unigram>(model))
    return std::make_unique<Workspace>(std::in_place_type<Unigram::Workspace>);
  return std::make_unique<Workspace>();
}

class EncodingSink final : public WordSink {
 public:
  // The workspace must be one of the model.
  EncodingSink(const Model& model, Workspace& workspace, std::vector<std::int32_t>& ids)
      : model_(model), workspace_(workspace), ids_(ids) {}
  void word(std::string_view text) override {
    if (const Bpe* const bpe = std::get_if<Bpe>(&model_)) {
      bpe->encode(text, std::get<Bpe::Workspace>(workspace_), ids_);
    } else {
      std::get<Unigram>(model_).encode(text, std::get<Unigram::Workspace>(workspace_), ids_);
    }
  }

 private:
  const Model& model_;
  Workspace& workspace_;
  std::vector<std::int32_t>& ids_;
};

json part(const json& file, const char* name) {
  const auto found = file.find(name);
  return found == file.end() ? json() : *found;
}

Model read_model(TokenizerFile& file, bool byte_level) {
  const json model = part(file.rest(), "model");
  if (is_unigram(model)) {
    if (byte_level)
      throw rendezvous::InputError("model Unigram with pre_tokenizer ByteLevel is not supported");
    const UnigramOptions options = read_unigram_options(model);
    return Unigram(file.take_vocabulary(), file.take_scores(), options);
  }
  BpeOptions options = read_bpe_options(model);
  options.byte_level = byte_level;
  return Bpe(file.take_vocabulary(), file.merges(), std::move(options));
}

json as_json(const AddedToken& token) {
  return {{"content", token.content},       {"single_word", token.single_word},
          {"lstrip", token.lstrip},         {"rstrip", token.rstrip},
          {"normalized", token.normalized}, {"special", token.special}};
}

}  // namespace

struct Tokenizer::Parts {
  // Idle workspaces for the next calls of encode: as many as ever ran at once.
  class Workspaces {
   public:
    std::unique_ptr<Workspace> take(const Model& model) {
      const std::lock_guard lock(mutex_);
      if (idle_.empty()) return make_workspace(model);
      auto workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
    void give_back(std::unique_ptr<Workspace> workspace) {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(workspace));
    }

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> idle_;
  };

  Parts(std::map<std::string, std::string> read, TokenizerFile file)
      : files(std::move(read)),
        config(read_tokenizer_config(files)),
        normalizer(part(file.rest(), "normalizer")),
        pre_tokenizer(part(file.rest(), "pre_tokenizer")),
        post_processor(part(file.rest(), "post_processor")),
        decoder(part(file.rest(), "decoder")),
        model(read_model(file, pre_tokenizer.byte_level())) {
    for (AddedToken& token : read_added_tokens(part(file.rest(), "added_tokens"))) {
      if (!token.content.empty()) add(std::move(token), kTokenizer);
    }
    // transformers uses these if the two files differ.
    for (const AddedToken& token : config.added_tokens) {
      if (!token.content.empty()) add(token, kTokenizerConfigFile);
    }
    added.prepare(normalizer);
  }

  const Vocabulary& vocabulary() const {
    return std::visit([](const auto& each) -> const Vocabulary& { return each.vocabulary(); },
                      model);
  }
  std::optional<std::int32_t> id_of(std::string_view token) const {
    if (const AddedToken* const found = added.find(token)) return found->id;
    return vocabulary().find(token);
  }
  const std::string* token(std::int32_t id) const {
    if (const AddedToken* const found = added.find(id)) return &found->content;
    return vocabulary().token(id);
  }
  // HF's decoding looks tokens up by text, which for a normalized token differs from its name.
  bool special(const std::string& token) const {
    const AddedToken* const found = added.find(token);
    return found && found->special;
  }
  std::int32_t end() const { return std::max(vocabulary().end(), added.end()); }

  // The id that HF's tokenizers give an added token, regardless of the id in the file.
  std::int32_t id_for(const std::string& content) const {
    if (const auto known = id_of(content)) return *known;
    const auto tokens = static_cast<std::int32_t>(vocabulary().count());
    return std::max(tokens, added.end());
  }

  void add(AddedToken token, const char* from) {
    const std::int32_t id = id_for(token.content);
    if (token.id != id) {
      throw rendezvous::InputError(fmt::format(
          "{}: added token \"{}\" has id {}, but Hugging Face's tokenizers give it id {}", from,
          token.content, token.id, id));
    }
    const std::string* const other = vocabulary().token(id);
    if (other && *other != token.content) {
      throw rendezvous::InputError(fmt::format("{}: added token \"{}\" has the id {} of \"{}\"",
                                               from, token.content, id, *other));
    }
    added.add(std::move(token));
  }

  void encode(std::string_view text, Workspace& workspace, std::vector<std::int32_t>& ids) const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  void append_to_files(const std::vector<AddedToken>& tokens);

  std::map<std::string, std::string> files;
  TokenizerConfig config;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  Model model;
  AddedTokens added;
  mutable Workspaces workspaces;
};

void Tokenizer::Parts::encode(std::string_view text, Workspace& workspace,
                              std::vector<std::int32_t>& ids) const {
  EncodingSink sink(model, workspace, ids);
  std::vector<Piece> pieces;
  std::vector<Piece> parts;
  added.split(text, false, true, pieces);
  std::string buffer;
  for (const Piece& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    parts.clear();
    const auto normal = normalizer.apply(piece.text, buffer);
    added.split(normal.text, true, piece.at_start && !normal.lost_its_start, parts);
    for (const Piece& within : parts) {
      if (within.id >= 0) {
        ids.push_back(within.id);
      } else {
        pre_tokenizer.split(within.text, within.at_start, sink);
      }
    }
  }
}

std::vector<std::int32_t> Tokenizer::Parts::encode(std::string_view text) const {
  if (const auto wrong = first_invalid_utf8(text)) {
    throw rendezvous::InputError(fmt::format("text is not UTF-8 at byte {}", *wrong));
  }
  if (text.size() > INT_MAX / 4) {
    throw rendezvous::InputError(fmt::format("text of {} bytes is too long", text.size()));
  }
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  auto workspace = workspaces.take(model);
  encode(text, *workspace, ids);
  workspaces.give_back(std::move(workspace));
  return ids;
}

void Tokenizer::Parts::append_to_files(const std::vector<AddedToken>& tokens) {
  std::vector<std::string> listed;
  std::vector<std::string> by_id;
  for (const AddedToken& token : tokens) {
    json with_id = as_json(token);
    with_id["id"] = token.id;
    listed.push_back(with_id.dump());
    by_id.push_back(fmt::format("\"{}\": {}", token.id, as_json(token).dump()));
  }
  auto& tokenizer = files.at(kTokenizer);
  tokenizer = with_appended(tokenizer, "added_tokens", listed);
  const auto beside = files.find(kTokenizerConfigFile);
  if (beside == files.end() || config.added_tokens.empty()) return;
  beside->second = with_appended(beside->second, "added_tokens_decoder", by_id);
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_files(std::map<std::string, std::string> files) {
  const auto read = [&] {
    try {
      TokenizerFile file(files.at(kTokenizer));
      if (file.has_no_tokens())
        throw rendezvous::InputError(
            "it has no tokens: \"vocab\" of \"model\" is missing or empty");
      return file;
    } catch (const std::runtime_error& error) {
      rendezvous::throw_like(error, fmt::format("{}: {}", kTokenizer, error.what()));
    }
  };
  TokenizerFile file = read();
  return Tokenizer(std::make_unique<Parts>(std::move(files), std::move(file)));
}

Tokenizer Tokenizer::parse(std::string_view tokenizer_json,
                           std::string_view tokenizer_config_json) {
  std::map<std::string, std::string> files{{kTokenizer, std::string(tokenizer_json)}};
  if (!tokenizer_config_json.empty()) files[kTokenizerConfigFile] = tokenizer_config_json;
  return from_files(std::move(files));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<std::int32_t> ids = parts_->encode(text);
  if (add_special_tokens) parts_->post_processor.apply(ids);
  return ids;
}

Tokenizer::Pair Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                       std::size_t longest) const {
  std::vector<std::int32_t> ids[] = {parts_->encode(first), parts_->encode(second)};
  const std::size_t added = parts_->post_processor.tokens_added_to_pair();
  const std::size_t room = longest - std::min(longest, added);
  const bool cut = ids[0].size() + ids[1].size() > room;
  if (cut) {
    auto& shorter = ids[ids[0].size() > ids[1].size() ? 1 : 0];
    auto& longer = ids[ids[0].size() > ids[1].size() ? 0 : 1];
    const std::size_t kept = std::min(shorter.size(), room / 2);
    shorter.resize(kept);
    longer.resize(room - kept);
  }
  return {parts_->post_processor.pair(std::move(ids[0]), std::move(ids[1])), cut};
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    const AddedToken* const added = parts_->added.find(id);
    const std::string* const token = added ? &added->decoded : parts_->token(id);
    if (token && !(skip_special_tokens && parts_->special(*token))) tokens.push_back(*token);
  }
  return parts_->decoder.decode(std::move(tokens));
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return parts_->id_of(token);
}

const std::string& Tokenizer::token_of(std::int32_t id) const {
  if (const std::string* const token = parts_->token(id)) return *token;
  throw rendezvous::InputError(
      fmt::format("id {} is not a token; the highest id is {}", id, size() - 1));
}

std::int32_t Tokenizer::size() const {
  return parts_->end();
}

bool Tokenizer::special(std::int32_t id) const {
  const AddedToken* const token = parts_->added.find(id);
  return token && token->special;
}

const std::string& Tokenizer::bos_token() const {
  return parts_->config.bos_token;
}
const std::string& Tokenizer::eos_token() const {
  return parts_->config.eos_token;
}
const std::string& Tokenizer::pad_token() const {
  return parts_->config.pad_token;
}
const std::string& Tokenizer::unk_token() const {
  return parts_->config.unk_token;
}

void Tokenizer::set_special_token(const std::string& role, const std::string& token) {
  auto& current = token_of_role(parts_->config, role);
  if (current == token) return;
  current = token;
  write_token_of_role(parts_->files, role, token);
}

void Tokenizer::set_chat_template(const std::string& source) {
  parts_->config.chat_template = source;
  parts_->files[kChatTemplateFile] = source;
}

// An empty name means that there is no such token.
std::optional<std::int32_t> Tokenizer::bos_id() const {
  return bos_token().empty() ? std::nullopt : id_of(bos_token());
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return eos_token().empty() ? std::nullopt : id_of(eos_token());
}
std::optional<std::int32_t> Tokenizer::pad_id() const {
  return pad_token().empty() ? std::nullopt : id_of(pad_token());
}
std::optional<std::int32_t> Tokenizer::unk_id() const {
  return unk_token().empty() ? std::nullopt : id_of(unk_token());
}

const std::string& Tokenizer::chat_template() const {
  return parts_->config.chat_template;
}

void Tokenizer::add_tokens(const std::vector<std::string>& tokens, bool special) {
  std::vector<AddedToken> fresh;
  for (const std::string& content : tokens) {
    if (content.empty()) throw rendezvous::InputError("cannot add an empty token");
    if (const auto wrong = first_invalid_utf8(content)) {
      throw rendezvous::InputError(
          fmt::format("cannot add a token that is not UTF-8 at byte {}", *wrong));
    }
    if (parts_->added.find(content)) continue;
    AddedToken token{.content = content, .normalized = !special, .special = special};
    token.id = parts_->id_for(content);
    parts_->add(token, "add_tokens");
    fresh.push_back(std::move(token));
  }
  if (fresh.empty()) return;
  parts_->added.prepare(parts_->normalizer);
  parts_->append_to_files(fresh);
}

const std::map<std::string, std::string>& Tokenizer::files() const {
  return parts_->files;
}

}  // namespace mgpu::text
