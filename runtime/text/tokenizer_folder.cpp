#include <cerrno>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "rendezvous/base/contained_file.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mgpu::text {
namespace {

namespace fs = std::filesystem;

// The files of a tokenizer. The last ones contain the vocabulary in older formats. We do not use
// them, but other programs do, so they are saved with the tokenizer.
constexpr const char* kNames[] = {"tokenizer.json",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "chat_template.jinja",
                                  "vocab.json",
                                  "merges.txt",
                                  "tokenizer.model",
                                  "spm.model",
                                  "spiece.model"};
constexpr const char* kMoreTemplates = "additional_chat_templates";
constexpr std::size_t kLongestFile = 256 << 20, kMostFiles = 100;

void write_file(const fs::path& path, const std::string& content) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) rendezvous::throw_errno("cannot write " + path.string());
}

}  // namespace

void Tokenizer::require_folder(const fs::path& folder) {
  if (!rendezvous::is_folder(folder))
    throw rendezvous::InputError(
        fmt::format("there is no folder {} with a tokenizer", folder.string()));
}

Tokenizer Tokenizer::load(const fs::path& folder) {
  require_folder(folder);
  if (!rendezvous::is_there(folder / kNames[0])) {
    throw rendezvous::InputError(fmt::format(
        "no tokenizer.json in {0}; to convert a tokenizer of another format: python3 -c "
        "\"from transformers import AutoTokenizer as T; "
        "T.from_pretrained('{0}').save_pretrained('{0}')\"",
        folder.string()));
  }
  std::map<std::string, std::string> files;
  const auto read = [&](const std::string& name) {
    return rendezvous::read_contained_file(folder.string(), name, kLongestFile);
  };
  for (const char* const name : kNames) {
    if (rendezvous::is_there(folder / name)) files[name] = read(name);
  }
  if (rendezvous::is_folder(folder / kMoreTemplates)) {
    for (const auto& entry : fs::directory_iterator(folder / kMoreTemplates)) {
      if (entry.path().extension() != ".jinja") continue;
      const auto name = fmt::format("{}/{}", kMoreTemplates, entry.path().filename().string());
      files[name] = read(name);
      if (files.size() > kMostFiles)
        throw rendezvous::InputError(fmt::format("{} has more than {} files",
                                                 (folder / kMoreTemplates).string(), kMostFiles));
    }
  }
  try {
    return from_files(std::move(files));
  } catch (const std::runtime_error& error) {
    rendezvous::throw_like(
        error, fmt::format("cannot use the tokenizer of {}: {}", folder.string(), error.what()));
  }
}

void Tokenizer::save(const fs::path& folder) const {
  fs::create_directories(folder);
  for (const auto& [name, content] : files()) {
    const fs::path path = folder / name;
    fs::create_directories(path.parent_path());
    write_file(path, content);
  }
}

}  // namespace mgpu::text
