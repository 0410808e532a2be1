#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/data/tokenizer_text.hpp"

namespace mgpu::recipes {

int train_tokenizer(const train::TrainTokenizerCommand& command) {
  const auto kind = text::tokenizer_kind(command.kind);
  const auto wanted = static_cast<std::size_t>(command.vocab_size);
  if (const auto least = text::least_vocabulary(kind); wanted < least)
    throw train::UsageError(fmt::format(
        "--vocab-size {}: --kind {} needs at least {}, for {} and the special tokens", wanted,
        command.kind, least, kind == text::TokenizerKind::bpe ? "all bytes" : "a character"));
  const auto path = std::filesystem::path(command.output) / "tokenizer.json";
  if (std::filesystem::exists(path))
    throw std::runtime_error(path.string() + " already exists; give another folder");
  std::vector<data::TextFile> files;
  for (const auto& file : command.files) {
    if (!rendezvous::is_there(file))
      throw train::UsageError(
          fmt::format("cannot read {}: {}", file, rendezvous::error_text(ENOENT)));
    files.push_back({.path = file, .rows = {.text_field = command.text_field}});
  }
  const auto text = data::read_text(files, kind, {});
  const auto made = text::train_tokenizer(text, {kind, wanted, command.min_frequency});
  checkpoint::make_writable_folder(command.output);
  for (const auto& [name, content] : made.files)
    checkpoint::write_file((std::filesystem::path(command.output) / name).string(), content);
  fmt::print("wrote {}: {} tokens{}\n", path.string(), made.vocab_size,
             made.vocab_size < wanted
                 ? fmt::format(", because the text yields no more (--vocab-size {})", wanted)
                 : "");
  return 0;
}

}  // namespace mgpu::recipes
