#include "launcher/options/completion.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "launcher/options/option_table.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  return ::pclose(pipe) == 0 ? text : "failed: " + text;
}

// The completions that bash offers for the last of these words, one per line.
std::string completed(const TempDir& dir, const std::string& words) {
  return output_of("cd '" + dir.path(".") + "' && bash -c 'source ./script; COMP_WORDS=(" + words +
                   "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _mgpu_run; "
                   "printf \"%s\\n\" \"${COMPREPLY[@]}\"' 2>&1");
}

}  // namespace

TEST_CASE("bash completes options, their values and the target", "[completion]") {
  TempDir dir;
  std::ofstream(dir.path("script")) << completion_script("bash");
  std::ofstream(dir.path("train.py")) << "";
  struct Case {
    std::string words, offered;
  };
  const auto c = GENERATE(values<Case>({
      {"mgpu-run --npro", "--nproc\n"},
      {"mgpu-run --max", "--max-restarts\n"},
      {"mgpu-run -n 4 --numa-binding core", "core-complex\n"},
      {"mgpu-run --numa-binding = soc", "socket\n"},  // bash splits words at the equals sign
      {"mgpu-run --nproc = 4 --dry", "--dry-run\n"},
      {"mgpu-run --completion z", "zsh\n"},
      {"mgpu-run tr", "train.py\n"},
      {"mgpu-run --quiet -n 2 tr", "train.py\n"},
      {"mgpu-run --config tr", "train.py\n"},
      {"mgpu-run dev", "devices\n"},
      {"mgpu-run doc", "doctor\n"},
      {"mgpu-run sta", "status\n"},
      {"mgpu-run --nproc ", "--nproc\n"},
      {"mgpu-run --role x", "\n"},         // free text has no completions
      {"mgpu-run train.py --npro", "\n"},  // words after TARGET belong to the program
  }));
  CAPTURE(c.words);
  CHECK(completed(dir, c.words) == c.offered);
}

TEST_CASE("bash accepts the script", "[completion]") {
  TempDir dir;
  std::ofstream(dir.path("script")) << completion_script("bash");
  CHECK(output_of("bash -n '" + dir.path("script") + "' 2>&1").empty());
}

TEST_CASE("the script of every shell has every option and command", "[completion]") {
  for (const auto& spec : option_table()) {
    CAPTURE(spec.name());
    for (const auto& [shell, word] :
         {std::pair("bash", "--" + spec.name()), std::pair("zsh", "--" + spec.name()),
          std::pair("fish", " -l " + spec.name())}) {
      const bool known = completion_script(shell).find(word) != std::string::npos;
      CHECK(known != spec.internal);
    }
  }
  for (const auto* command : {"devices", "doctor", "status"}) {
    CAPTURE(command);
    CHECK_THAT(completion_script("zsh"), Contains(command));
    CHECK_THAT(completion_script("fish"), Contains(std::string(" -a ") + command + " "));
  }
  CHECK_THAT(completion_script("zsh"), Catch::Matchers::StartsWith("#compdef mgpu-run\n"));
}

TEST_CASE("no help text has an apostrophe, which would end a quoted text of zsh", "[completion]") {
  for (const auto& spec : option_table()) {
    CAPTURE(spec.name());
    CHECK(spec.help.find('\'') == std::string::npos);
  }
}
