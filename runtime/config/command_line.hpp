#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace mgpu::train {

// A mistake on the command line: the program ends with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A recipe and how it is changed.
struct RecipeArguments {
  std::string path;
  std::vector<std::string> set;
  bool allow_unknown = false;

  friend bool operator==(const RecipeArguments&, const RecipeArguments&) = default;
};

struct RunCommand {
  RecipeArguments recipe;
  bool single = false;  // goes on alone where several GPUs are visible
};

struct CheckCommand {
  RecipeArguments recipe;
  std::optional<std::int64_t> ranks;  // absent: WORLD_SIZE, or what the recipe tells
};

struct PlanCommand {
  RecipeArguments recipe;
  std::optional<std::int64_t> gpu_bytes;  // absent: the visible GPU's
  std::optional<std::int64_t> gpus;       // absent: as many as are visible
};

struct InitCommand {
  std::string kind;
  std::string output;  // empty: stdout
};

struct GenerateCommand {
  std::string model;
  std::string adapter;
  std::string prompt;  // this, or
  std::string input;   // a JSONL file
  std::string output;  // empty: stdout
  std::int64_t max_new_tokens = 256;
  double temperature = 1;
  double top_p = 1;
  std::int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  std::int64_t samples = 1;    // answers to each prompt
  std::int64_t sequences = 0;  // that are continued together; 0: chosen
  std::uint64_t seed = 42;
  bool raw = false;      // without the chat template
  bool details = false;  // token ids, their log-probabilities and why an answer ended
};

struct MergeCommand {
  std::string model;
  std::string adapter;
  std::string output;
};

// Writes a model in bitsandbytes' 4 bits.
struct QuantizeCommand {
  std::string model;
  std::string output;
};

// Fills the cache of token ids, and trains nothing.
struct TokenizeCommand {
  RecipeArguments recipe;
};

// What completions in a file are worth.
struct ScoreCommand {
  std::string rewards;   // names, with commas between them
  std::string settings;  // a JSON object of the keys of rewards
  std::string input;     // a JSONL file
  std::string output;    // empty: stdout
};

struct KeysCommand {};  // prints the reference of keys
struct VersionCommand {};
struct HelpCommand {};

using Command = std::variant<RunCommand, CheckCommand, PlanCommand, InitCommand, GenerateCommand,
                             MergeCommand, QuantizeCommand, TokenizeCommand, ScoreCommand,
                             KeysCommand, VersionCommand, HelpCommand>;

// What a command line asks for. Throws UsageError, "what is wrong; what to do".
Command parse_command_line(int argc, const char* const* argv);

std::string help_text();     // one screen
std::string version_text();  // "mgpu-train 0.1.0"

}  // namespace mgpu::train
