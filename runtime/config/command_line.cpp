#include "runtime/config/command_line.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/planning/known_models.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/config/templates.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

constexpr std::uint64_t kMostRanksOfJob = 65536;
constexpr std::uint64_t kLargestVocabulary = 1 << 22;

// The arguments from index `first` on, in the order that CLI11 requires: last first.
std::vector<std::string> reversed(int argc, const char* const* argv, int first) {
  return {std::reverse_iterator(argv + argc), std::reverse_iterator(argv + first)};
}

// Accepts numbers in a range, and otherwise names what is needed; `kind` is "a whole number" or "a
// number".
template <class Number>
CLI::Validator range(Number least, Number most, const char* kind) {
  const auto check = [=](const std::string& text) {
    Number value{};
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most)
      return std::string();
    return fmt::format("need {} from {} to {}, not {}", kind, least, most, shown(text, 48));
  };
  return {check, ""};
}

CLI::Validator whole(std::uint64_t least, std::uint64_t most) {
  return range(least, most, "a whole number");
}

CLI::Validator number(double least, double most) {
  return range(least, most, "a number");
}

// CLI11's message, or a better one where it does not name what is needed.
std::string message_of(const CLI::ParseError& e) {
  const std::string text = e.what();
  if (dynamic_cast<const CLI::ConversionError*>(&e)) {  // a flag; numbers are checked before
    const auto name = text.find("--"), equals = text.find(" = ");
    if (name < equals && equals != text.npos)
      return fmt::format("{} {}: need true or false", text.substr(name, equals - name),
                         text.substr(equals + 3));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&e)) {
    const auto name = text.substr(0, text.find(':'));
    if (text.ends_with("missing")) return name + ": needs a value";
    if (text.find("At Most 1 ") != text.npos) return name + " is repeated; give it once";
  }
  if (const auto at = text.find(" excludes ");
      dynamic_cast<const CLI::ExcludesError*>(&e) && at != text.npos)
    return fmt::format("{} and {} cannot be combined", text.substr(0, at), text.substr(at + 10));
  return text;
}

void parse(CLI::App& app, std::vector<std::string> words) {
  app.set_help_flag();  // one help text covers all commands
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    // parse_all() rejects an argument that no option took, which may be the misspelled name of the
    // option that is missing.
    if (dynamic_cast<const CLI::RequiredError*>(&e) && !app.remaining().empty()) return;
    throw UsageError(fmt::format("{}; see mgpu-train --help", shown(message_of(e), 160)));
  }
}

// The recipe key that an argument such as --batch-size or --lr=1e-4 names; "" if it names none.
std::string recipe_key_in(std::string_view argument) {
  if (!argument.starts_with("--")) return {};
  std::string name(argument.substr(2, argument.find('=') - 2));
  std::replace(name.begin(), name.end(), '-', '_');
  return find_key(name) ? name : std::string();
}

// Rejects arguments that no option took, and suggests the nearest option.
void parse_all(CLI::App& app, std::vector<std::string> words) {
  app.allow_extras();
  parse(app, std::move(words));
  const auto extras = app.remaining();
  if (extras.empty()) return;
  std::vector<std::string> known;
  bool takes_recipe = false;
  for (const auto* option : app.get_options())
    if (!option->get_lnames().empty()) {
      known.push_back("--" + option->get_lnames().front());
      takes_recipe = takes_recipe || option->get_lnames().front() == "set";
    }
  const auto& extra = extras.front();
  if (const auto key = recipe_key_in(extra); takes_recipe && !key.empty())
    throw UsageError(fmt::format(
        "unknown option {}; to set a key of the recipe write --set {}=VALUE", shown(extra), key));
  const auto near = extra.starts_with("-") ? rendezvous::nearest(extra, known) : std::string();
  throw UsageError(near.empty()
                       ? fmt::format("unexpected argument {}; see mgpu-train --help", shown(extra))
                       : fmt::format("unknown option {}; did you mean {}?", shown(extra), near));
}

void add_recipe(CLI::App& app, RecipeArguments& recipe) {
  app.add_option("FILE.yaml", recipe.path);
  app.add_option("--set", recipe.set)->allow_extra_args(false);
  app.add_flag("--allow-unknown", recipe.allow_unknown);
}

void add_ranks(CLI::App& app, std::optional<std::int64_t>& ranks) {
  app.add_option("--gpus,--nproc", ranks)->check(whole(1, kMostRanksOfJob));
}

// --set alone is a recipe too.
void require_recipe(const RecipeArguments& recipe) {
  if (recipe.path.empty() && recipe.set.empty())
    throw UsageError("no recipe given; run mgpu-train FILE.yaml, or see mgpu-train --help");
}

Command parse_run(std::vector<std::string> words) {
  RunCommand run;
  bool check = false;
  std::optional<std::int64_t> ranks;
  CLI::App app;
  add_recipe(app, run.recipe);
  app.add_flag("--single", run.single);
  app.add_flag("--check", check);
  add_ranks(app, ranks);
  parse_all(app, std::move(words));
  require_recipe(run.recipe);
  if (check) return CheckCommand{run.recipe, ranks};
  if (ranks)
    throw UsageError(fmt::format(
        "--gpus is for --check; to train on {0} GPUs run mgpu-run --nproc {0}{1}", *ranks,
        run.recipe.path.empty() ? std::string() : " " + shown(run.recipe.path)));
  return run;
}

Command parse_check(std::vector<std::string> words) {
  CheckCommand check;
  CLI::App app;
  add_recipe(app, check.recipe);
  add_ranks(app, check.ranks);
  parse_all(app, std::move(words));
  require_recipe(check.recipe);
  return check;
}

Command parse_plan(std::vector<std::string> words) {
  PlanCommand plan;
  std::string memory;
  CLI::App app;
  add_recipe(app, plan.recipe);
  app.add_option("--model-size", plan.model_size);
  app.add_option("--write", plan.output);
  app.add_option("--gpu-memory", memory);
  app.add_option("--gpus", plan.gpus)->check(whole(1, kMostRanksOfJob));
  parse_all(app, std::move(words));
  try {
    if (!memory.empty()) plan.gpu_bytes = parse_memory(memory);
  } catch (const std::runtime_error& e) {
    throw UsageError(fmt::format("--gpu-memory: {}", e.what()));
  }
  try {
    if (!plan.model_size.empty()) known_model(plan.model_size);
  } catch (const std::runtime_error& e) {
    throw UsageError(fmt::format("--model-size: {}", e.what()));
  }
  if (plan.recipe.path.empty() && plan.recipe.set.empty() && plan.model_size.empty())
    throw UsageError("plan needs FILE.yaml or --model-size, such as 7B; see mgpu-train --help");
  if (plan.recipe.path.empty() && !plan.recipe.set.empty() && !plan.model_size.empty())
    throw UsageError("--set changes a recipe; give FILE.yaml too");
  if (!plan.output.empty() && (plan.model_size.empty() || !plan.recipe.path.empty()))
    throw UsageError("--write writes the recipe that --model-size suggests; leave out FILE.yaml");
  return plan;
}

Command parse_init(std::vector<std::string> words) {
  InitCommand init;
  CLI::App app;
  app.add_option("KIND", init.kind)->required();
  app.add_option("-o,--output", init.output);
  parse_all(app, std::move(words));
  try {
    template_text(init.kind);
  } catch (const std::runtime_error& e) {
    throw UsageError(e.what());
  }
  return init;
}

Command parse_quickstart(std::vector<std::string> words) {
  QuickstartCommand quickstart;
  CLI::App app;
  app.add_option("FOLDER", quickstart.folder);
  parse_all(app, std::move(words));
  return quickstart;
}

Command parse_generate(std::vector<std::string> words) {
  GenerateCommand generate;
  CLI::App app;
  app.add_option("--model", generate.model)->required();
  app.add_option("--adapter", generate.adapter);
  auto* prompt = app.add_option("--prompt", generate.prompt);
  auto* input = app.add_option("--input", generate.input)->excludes(prompt);
  app.add_option("-o,--output", generate.output);
  app.add_option("--max-new-tokens", generate.max_new_tokens)->check(whole(1, 1 << 24));
  app.add_option("--temperature", generate.temperature)->check(number(0.0, 1e3));
  app.add_option("--top-p", generate.top_p)->check(number(0.0, 1.0));
  app.add_option("--top-k", generate.top_k)->check(whole(0, 1 << 24));
  app.add_option("--min-p", generate.min_p)->check(number(0.0, 1.0));
  app.add_option("--repetition-penalty", generate.repetition_penalty)->check(number(1e-3, 1e3));
  app.add_option("--stop", generate.stop)->allow_extra_args(false);
  app.add_option("--allowed", generate.allowed);
  app.add_option("--beams", generate.beams)->check(whole(1, 1 << 16));
  app.add_option("--length-penalty", generate.length_penalty)->check(number(-10.0, 10.0));
  app.add_option("--early-stopping", generate.early_stopping)
      ->check(CLI::IsMember({"no", "yes", "never"}));
  app.add_option("--samples", generate.samples)->check(whole(1, 1 << 16));
  app.add_option("--sequences", generate.sequences)->check(whole(1, 1 << 16));
  app.add_option("--seed", generate.seed)->check(whole(0, UINT64_MAX));
  app.add_flag("--raw", generate.raw);
  app.add_flag("--details", generate.details);
  parse_all(app, std::move(words));
  if (prompt->count() + input->count() == 0)
    throw UsageError("generate: need --prompt TEXT or --input FILE.jsonl");
  if (generate.beams > 0 && generate.samples > generate.beams)
    throw UsageError(
        fmt::format("--samples {} exceeds --beams {}", generate.samples, generate.beams));
  if (generate.beams > 0 && generate.repetition_penalty != 1)
    throw UsageError("--repetition-penalty has no effect on --beams; leave one of them out");
  return generate;
}

Command parse_merge(std::vector<std::string> words) {
  MergeCommand merge;
  CLI::App app;
  app.add_option("--model", merge.model)->required();
  app.add_option("--adapter", merge.adapter)->required();
  app.add_option("-o,--output", merge.output)->required();
  parse_all(app, std::move(words));
  return merge;
}

Command parse_quantize(std::vector<std::string> words) {
  QuantizeCommand quantize;
  CLI::App app;
  app.add_option("--model", quantize.model)->required();
  app.add_option("-o,--output", quantize.output)->required();
  parse_all(app, std::move(words));
  return quantize;
}

Command parse_tokenize(std::vector<std::string> words) {
  TokenizeCommand tokenize;
  CLI::App app;
  add_recipe(app, tokenize.recipe);
  parse_all(app, std::move(words));
  require_recipe(tokenize.recipe);
  return tokenize;
}

Command parse_data(std::vector<std::string> words) {
  DataCommand data;
  CLI::App app;
  add_recipe(app, data.recipe);
  app.add_option("--rows", data.rows)->check(whole(0, INT64_MAX));
  parse_all(app, std::move(words));
  require_recipe(data.recipe);
  return data;
}

Command parse_train_tokenizer(std::vector<std::string> words) {
  TrainTokenizerCommand train;
  CLI::App app;
  app.add_option("FILE", train.files)->required();
  app.add_option("-o,--output", train.output)->required();
  app.add_option("--kind", train.kind);
  app.add_option("--vocab-size", train.vocab_size)->check(whole(1, kLargestVocabulary));
  app.add_option("--min-frequency", train.min_frequency)->check(whole(0, INT64_MAX));
  app.add_option("--text-field", train.text_field);
  parse_all(app, std::move(words));
  if (train.kind != "bpe" && train.kind != "characters")
    throw UsageError(fmt::format("--kind: need bpe or characters, not {}", shown(train.kind, 48)));
  return train;
}

Command parse_score(std::vector<std::string> words) {
  ScoreCommand score;
  CLI::App app;
  app.add_option("FILE.jsonl", score.input)->required();
  app.add_option("--rewards", score.rewards)->required();
  app.add_option("--settings", score.settings);
  app.add_option("-o,--output", score.output);
  parse_all(app, std::move(words));
  return score;
}

template <class Plain>
Command plain(std::vector<std::string> words) {
  CLI::App app;
  bool markdown = false;
  if constexpr (std::is_same_v<Plain, KeysCommand>) app.add_flag("--markdown", markdown);
  parse_all(app, std::move(words));
  return Plain{};
}

Command parse_version(std::vector<std::string> words) {
  VersionCommand version;
  CLI::App app;
  app.add_flag("--worker", version.worker);
  parse_all(app, std::move(words));
  return version;
}

using ParseWords = Command (*)(std::vector<std::string>);

const std::map<std::string, ParseWords>& commands() {
  static const std::map<std::string, ParseWords> all{
      {"check", parse_check},
      {"plan", parse_plan},
      {"init", parse_init},
      {"generate", parse_generate},
      {"merge", parse_merge},
      {"quantize", parse_quantize},
      {"tokenize", parse_tokenize},
      {"data", parse_data},
      {"score", parse_score},
      {"quickstart", parse_quickstart},
      {"train-tokenizer", parse_train_tokenizer},
      {"keys", plain<KeysCommand>},
      {"version", parse_version},
      {"help", plain<HelpCommand>},
  };
  return all;
}

// Rejects a misspelled command, which would be taken for the name of a recipe.
void reject_misspelled(const std::string& word) {
  std::error_code ignored;
  if (word.starts_with("-") || word.find_first_of("./") != word.npos ||
      std::filesystem::exists(word, ignored))
    return;
  std::vector<std::string> names;
  for (const auto& [name, parse] : commands()) names.push_back(name);
  if (const auto near = rendezvous::nearest(word, names); !near.empty())
    throw UsageError(fmt::format("unknown command {}; did you mean {}?", shown(word), near));
}

}  // namespace

Command parse_command_line(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-h" || word == "--help") return HelpCommand{};
    if (word == "--version") return VersionCommand{};
    if (word == "--" || word == "--prompt") break;
  }
  if (argc > 1) {
    const auto found = commands().find(argv[1]);
    if (found != commands().end()) return found->second(reversed(argc, argv, 2));
    reject_misspelled(argv[1]);
  }
  return parse_run(reversed(argc, argv, std::min(argc, 1)));
}

}  // namespace mgpu::train
