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

// A recipe and its changes.
struct RecipeArguments {
  std::string path;
  std::vector<std::string> set;
  bool allow_unknown = false;

  friend bool operator==(const RecipeArguments&, const RecipeArguments&) = default;
};

struct RunCommand {
  RecipeArguments recipe;
  bool single = false;  // uses one GPU even if several are visible
};

struct CheckCommand {
  RecipeArguments recipe;
  std::optional<std::int64_t> ranks;  // absent: WORLD_SIZE, else derived from the recipe
};

struct PlanCommand {
  RecipeArguments recipe;                 // without a path: a recipe is suggested for model_size
  std::string model_size;                 // of a published model, instead of the recipe's
  std::string output;                     // the file for a suggested recipe; empty: stdout
  std::optional<std::int64_t> gpu_bytes;  // absent: that of the visible GPU
  std::optional<std::int64_t> gpus;       // absent: the visible GPUs
};

struct InitCommand {
  std::string kind;
  std::string output;  // empty: stdout
};

// Writes recipes with their data and tokenizer.
struct QuickstartCommand {
  std::string folder = "quickstart";
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
  std::string allowed;     // a file with the only completions; empty: all are allowed
  std::int64_t beams = 0;  // 0: completions are sampled
  double length_penalty = 1;
  std::string early_stopping = "no";
  std::int64_t samples = 1;    // completions per prompt
  std::int64_t sequences = 0;  // generated concurrently; 0: chosen automatically
  std::uint64_t seed = 42;
  bool raw = false;      // without the chat template
  bool details = false;  // adds token ids, log-probabilities and why a completion ended
};

struct MergeCommand {
  std::string model;
  std::string adapter;
  std::string output;
};

// Writes a copy of a model with 4-bit weights, as bitsandbytes does.
struct QuantizeCommand {
  std::string model;
  std::string output;
};

// Tokenizes the dataset into the cache without training.
struct TokenizeCommand {
  RecipeArguments recipe;
};

// Shows the dataset as the model sees it.
struct DataCommand {
  RecipeArguments recipe;
  std::int64_t rows = 3;  // to show in full
};

// Trains a tokenizer on text.
struct TrainTokenizerCommand {
  std::vector<std::string> files;
  std::string output;        // a folder
  std::string kind = "bpe";  // or characters
  std::int64_t vocab_size = 8192;
  std::int64_t min_frequency = 2;
  std::string text_field = "text";  // of JSONL files with one text column
};

// Computes the rewards of completions in a file.
struct ScoreCommand {
  std::string rewards;   // names, separated by commas
  std::string settings;  // a JSON object with settings of rewards
  std::string input;     // a JSONL file
  std::string output;    // empty: stdout
};

struct KeysCommand {};  // prints the reference of all keys
struct VersionCommand {
  bool worker = false;  // of the worker, which loads LibTorch
};
struct HelpCommand {};

using Command =
    std::variant<RunCommand, CheckCommand, PlanCommand, InitCommand, GenerateCommand, MergeCommand,
                 QuantizeCommand, TokenizeCommand, TrainTokenizerCommand, ScoreCommand,
                 QuickstartCommand, DataCommand, KeysCommand, VersionCommand, HelpCommand>;

// Parses a command line. Throws UsageError with a message "what is wrong; what to do".
Command parse_command_line(int argc, const char* const* argv);

std::string help_text();     // one screen
std::string version_text();  // "mgpu-train 0.1.0"

}  // namespace mgpu::train
