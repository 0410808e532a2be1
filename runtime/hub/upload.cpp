#include "runtime/hub/upload.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "runtime/hub/failure.hpp"
#include "runtime/hub/started_program.hpp"

namespace mgpu::hub {
namespace {

constexpr std::size_t kKeptUploadOutput = 64 << 10;

// What a model consists of, in its folder and in that of a named adapter.
constexpr std::array kModelFiles{"*.safetensors",     "*.safetensors.index.json",
                                 "*config.json",      "tokenizer.json",
                                 "tokenizer.model",   "special_tokens_map.json",
                                 "added_tokens.json", "*.jinja",
                                 "vocab.json",        "merges.txt",
                                 "spiece.model",      "spm.model"};
constexpr std::array kOtherFiles{"checkpoint-*", ".*", "traces/*", "completions/*"};

std::vector<std::string> arguments(const Upload& upload) {
  std::vector<std::string> words{"upload", upload.name, upload.folder, "."};
  for (const char* pattern : kModelFiles) words.insert(words.end(), {"--include", pattern});
  for (const char* pattern : kOtherFiles) words.insert(words.end(), {"--exclude", pattern});
  if (!upload.revision.empty()) words.insert(words.end(), {"--revision", upload.revision});
  if (upload.is_private) words.emplace_back("--private");
  words.insert(words.end(), {"--commit-message", "Upload the trained model"});
  return words;
}

std::string output_of(int fd) {
  std::string output;
  char bytes[4096];
  while (true) {
    const auto got = ::read(fd, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return output;
    output.append(bytes, static_cast<std::size_t>(got));
    if (output.size() > 2 * kKeptUploadOutput) output.erase(0, output.size() - kKeptUploadOutput);
  }
}

}  // namespace

std::optional<Program> upload_program(const Upload& upload) {
  auto program = find_hf();
  if (!program) return std::nullopt;
  for (auto& word : arguments(upload)) program->argv.push_back(std::move(word));
  if (!upload.token.empty()) {
    std::erase_if(program->environment,
                  [](const auto& entry) { return entry.starts_with("HF_TOKEN="); });
    program->environment.push_back("HF_TOKEN=" + upload.token);
  }
  return program;
}

std::string upload_command(const Upload& upload) {
  return fmt::format("hf upload {} {} . --exclude 'checkpoint-*'", upload.name, upload.folder);
}

void run_upload(const Upload& upload) {
  const auto program = upload_program(upload);
  if (!program)
    throw HubError(fmt::format("hf is not installed; run {}", install_command(Site::huggingface)),
                   false);
  auto started = start_program(*program);
  const auto output = output_of(started.output.get());
  const auto status = started.child.wait();
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return;
  const auto line = error_line_of(output);
  throw HubError(line.empty() ? "hf failed" : line, true);
}

}  // namespace mgpu::hub
