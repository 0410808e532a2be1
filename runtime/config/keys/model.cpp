// The keys of the task, the model, the data and the batch.

#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/model/families.hpp"
#include "runtime/model/presets.hpp"

namespace mgpu::train {
namespace {

std::string shown_sources(const std::vector<DataSource>& sources) {
  std::vector<std::string> words;
  for (const auto& source : sources)
    words.push_back(source.weight == 1 ? source.path
                                       : source.path + " x " + shown_number(source.weight));
  return words.size() == 1 ? words.front() : shown_words(words);
}

void set_packing_strategy(TrainConfig& c, const YamlNode& value) {
  c.packing_strategy = choose(
      value, Choices<std::string>{{"bfd", "bfd"}, {"ffd", "bfd"}, {"sequential", "sequential"}});
  if (value.text == "ffd") c.notes.push_back("means bfd (best fit), which wastes no more space");
}

void set_sequential_packing(TrainConfig& c, const YamlNode& value) {
  c.packing_strategy = to_flag(value) ? "sequential" : "bfd";
}

Choices<std::string> sizes() {
  Choices<std::string> choices;
  for (const auto& size : model::preset_sizes()) choices.emplace_back(size, size);
  return choices;
}

Choices<model::Family> family_choices() {
  Choices<model::Family> choices;
  for (const auto& row : model::families()) choices.emplace_back(row.model_type, row.family);
  return choices;
}

}  // namespace

// clang-format off: one paragraph per key is easier to read than one line per field.
std::vector<KeySpec> model_keys() {
  using C = TrainConfig;
  return {
      {.name = "task",
       .aliases = {"stage", "rl"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::string(c.task == Task::grpo ? "grpo" : "sft"); }),
       .help = "training method: sft: supervised fine-tuning; pt: the same with packing: true, for rows "
               "of text; grpo: GRPO; gspo: GRPO with importance_sampling_level: sequence and "
               "loss_type: grpo",
       .initial = "grpo if reward_funcs, reward_type, reward_model or num_generations is set, else sft",
       .value = "sft|pt|grpo|gspo"},
      {.name = "model_name_or_path",
       .aliases = {"base_model", "model_name", "model", "model_id", "policy_model", "model_path"},
       .field = text(&C::model_name_or_path),
       .help = "folder in Hugging Face layout, or the name of a model of the Hub, such as "
               "Qwen/Qwen2.5-7B-Instruct, which is downloaded unless it is in the cache"},
      {.name = "model_type",
       .aliases = {"architecture"},
       .help = "class of the model in transformers; it has no effect, because config.json names the "
               "architecture, but classes for anything but text are refused",
       .value = "TEXT"},
      {.name = "plugins",
       .help = "axolotl's plugins. Those for kernels, losses and logs have no effect; others are "
               "refused",
       .value = "LIST"},
      {.name = "model_revision",
       .aliases = {"revision_of_model", "revision"},
       .field = text(&C::model_revision),
       .help = "branch, tag or commit of the model"},
      {.name = "hub",
       .field = choice(&C::hub, {{"auto", Hub::automatic},
                                 {"huggingface", Hub::huggingface},
                                 {"modelscope", Hub::modelscope}}),
       .help = "from where names of models and datasets are downloaded; auto: modelscope if the "
               "variable USE_MODELSCOPE_HUB is 1, else huggingface"},
      {.name = "offline",
       .aliases = {"local_files_only"},
       .field = flag(&C::offline),
       .help = "downloads nothing: models and datasets must be in the cache; the variable "
               "HF_HUB_OFFLINE=1 has the same effect"},
      {.name = "model_size",
       .field = choice(&C::model_size, sizes()),
       .help = "trains a new model of this size from scratch instead of a checkpoint; without "
               "tokenizer_path its tokenizer is trained from the data (task grpo requires "
               "tokenizer_path); 0.6B and larger are sizes of model_family: qwen3"},
      {.name = "model_family",
       .field = choice(&C::model_family, family_choices()),
       .help = "family of the new model; with model_size only"},
      {.name = "tokenizer_path",
       .aliases = {"tokenizer_name_or_path", "tokenizer_name", "tokenizer"},
       .field = text(&C::tokenizer_path),
       .help = "folder with tokenizer.json, if it is not the model's folder"},
      {.name = "tokenizer_kind",
       .field = choice(&C::tokenizer_kind, {{"bpe", "bpe"}, {"characters", "characters"}}),
       .help = "kind of the tokenizer that is trained from the data if model_size is set without "
               "tokenizer_path: byte-level BPE, or a token for each character",
       .task = KeyTask::sft},
      {.name = "vocab_size",
       .field = whole(&C::vocab_size, between(1, 1 << 22)),
       .help = "tokens of that tokenizer at most, with 3 special tokens (characters: 4); bpe needs "
               "at least 259",
       .task = KeyTask::sft},
  };
}

std::vector<KeySpec> data_keys() {
  using C = TrainConfig;
  return {
      {.name = "dataset_name",
       .aliases = {"datasets", "dataset", "train_dataset", "train_file", "train_data", "data_path",
                   "dataset_path", "data_files", "dataset_name_or_path", "dataset_mixture"},
       .field = shown_as([](const TrainConfig& c) { return shown_sources(c.dataset_name); }),
       .help = "training data: a file, a folder, a pattern such as data/*.csv, the name of a dataset "
               "of the Hub, a list of these, or of maps with path, split, subset, weight and more "
               "(docs/data.md)",
       .value = "PATH|NAME|LIST"},
      {.name = "dataset_dir",
       .help = "folder prepended to each relative path of dataset_name and eval_dataset",
       .value = "DIR"},
      {.name = "eval_dataset",
       .aliases = {"eval_file", "test_datasets", "eval_dataset_name", "validation_file",
                   "val_dataset", "eval_data_path", "validation_datasets"},
       .field = shown_as([](const TrainConfig& c) { return shown_sources(c.eval_dataset); }),
       .help = "evaluation data, in the same form as dataset_name",
       .value = "PATH|LIST"},
      {.name = "dataset_config",
       .aliases = {"dataset_config_name", "subset"},
       .field = text(&C::dataset_config),
       .help = "subset of every dataset that names none"},
      {.name = "dataset_train_split",
       .field = text(&C::dataset_train_split),
       .help = "split of the datasets in dataset_name, which may have slices: train[:10%]",
       .initial = "train"},
      {.name = "dataset_test_split",
       .field = text(&C::dataset_test_split),
       .help = "split of the same datasets for evaluation, if eval_strategy is set and eval_dataset "
               "is not"},
      {.name = "max_samples",
       .aliases = {"max_train_samples"},
       .field = whole(&C::max_samples, at_least(0)),
       .help = "uses only so many rows from the beginning of each dataset",
       .initial = "0: all"},
      {.name = "dataset_format",
       .aliases = {"data_format", "dataset_type"},
       .field = choice(&C::dataset_format, {{"auto", "auto"},
                                            {"text", "text"},
                                            {"completion", "text"},
                                            {"messages", "messages"},
                                            {"chat_template", "messages"},
                                            {"conversation", "messages"},
                                            {"openai", "messages"},
                                            {"prompt_completion", "prompt_completion"},
                                            {"tokenized", "tokenized"},
                                            {"sharegpt", "sharegpt"},
                                            {"input_output", "input_output"},
                                            {"alpaca", "alpaca"},
                                            {"instruction", "alpaca"}}),
       .help = "format of the rows; auto: detected from the columns"},
      {.name = "dataset_text_field",
       .aliases = {"text_field", "text_column"},
       .field = text(&C::dataset_text_field),
       .help = "name of the column with plain text"},
      {.name = "prompt_template",
       .field = text(&C::prompt_template),
       .help = "text with {column} placeholders, filled in from each row; for rows of plain "
               "columns"},
      {.name = "val_set_size",
       .aliases = {"val_size", "validation_split_ratio", "test_split_size"},
       .field = number(&C::val_set_size, at_least(0)),
       .help = "training rows to hold out for evaluation: a fraction below 1, or a number of rows"},
      {.name = "train_split",
       .help = "fraction of rows to train on; the rest is held out for evaluation",
       .value = "NUMBER",
       .sets = "val_set_size"},
      {.name = "max_length",
       .aliases = {"max_seq_length", "max_seq_len", "cutoff_len", "sequence_len",
                   "model_max_length", "seq_len", "block_size"},
       .field = whole(&C::max_length, at_least(2)),
       .help = "longer rows are cut to this many tokens; with packing, the size of a bin"},
      {.name = "packing",
       .aliases = {"sample_packing", "neat_packing"},
       .field = flag(&C::packing),
       .help = "packs several rows into one sequence; each row attends only to itself",
       .task = KeyTask::sft},
      {.name = "packing_strategy",
       .field = {.value = "bfd|sequential",
                 .set = set_packing_strategy,
                 .show = [](const C& c) { return c.packing_strategy; }},
       .help = "how rows are packed. bfd: best fit, the longest first; sequential: in their order, "
               "which leaves more space unused",
       .task = KeyTask::sft},
      {.name = "sample_packing_sequentially",
       .field = {.value = "true|false", .set = set_sequential_packing},
       .help = "true means packing_strategy: sequential",
       .sets = "packing_strategy",
       .task = KeyTask::sft},
      {.name = "group_by_length",
       .aliases = {"train_sampling_strategy"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::string(c.group_by_length ? "true" : "false"); }),
       .help = "puts rows of similar length into the same batch; train_sampling_strategy: "
               "group_by_length has the same effect",
       .initial = "false",
       .value = "true|false"},
      {.name = "shuffle_dataset",
       .aliases = {"shuffle", "shuffle_merged_datasets"},
       .field = flag(&C::shuffle_dataset),
       .help = "shuffles the rows in every epoch"},
      {.name = "curriculum_sampling",
       .field = inverse(&C::shuffle_dataset),
       .help = "the opposite",
       .sets = "shuffle_dataset",
       .task = KeyTask::sft},
      {.name = "completion_only_loss",
       .aliases = {"mask_prompt"},
       .field = flag(&C::completion_only_loss),
       .help = "computes the loss on completions only; auto: if the rows have completions",
       .task = KeyTask::sft},
      {.name = "train_on_inputs",
       .aliases = {"train_on_prompt"},
       .field = {.value = "true|false",
                 .set = [](C& c, const YamlNode& v) { c.completion_only_loss = !to_flag(v); }},
       .help = "the opposite",
       .sets = "completion_only_loss",
       .task = KeyTask::sft},
      {.name = "assistant_only_loss",
       .aliases = {"assistant_loss_only"},
       .field = flag(&C::assistant_only_loss),
       .help = "computes the loss on the assistant's turns only",
       .task = KeyTask::sft},
      {.name = "roles_to_train",
       .help = "[assistant] means assistant_only_loss: true",
       .value = "LIST",
       .sets = "assistant_only_loss",
       .task = KeyTask::sft},
      {.name = "dataset_exact_deduplication",
       .field = flag(&C::dataset_exact_deduplication),
       .help = "leaves out rows that equal an earlier row of the same kind of data (training or "
               "evaluation), in their tokens and in which of them have a loss",
       .task = KeyTask::sft},
      {.name = "on_bad_row",
       .field = choice(&C::on_bad_row, {{"error", BadRow::error}, {"skip", BadRow::skip}}),
       .help = "what to do with a row that cannot be read: stop with an error, or skip it"},
      {.name = "dataset_prepared_path",
       .aliases = {"tokenized_path"},
       .field = text(&C::dataset_prepared_path),
       .help = "folder of the token id cache",
       .initial = "$XDG_CACHE_HOME/mgpu-train, else ~/.cache/mgpu-train"},
      {.name = "dataset_num_proc",
       .aliases = {"preprocessing_num_workers"},
       .field = whole(&C::dataset_num_proc, at_least(0)),
       .help = "tokenizer threads per rank",
       .initial = "0: one per CPU core of the rank"},
      {.name = "dataloader_num_workers",
       .aliases = {"num_workers"},
       .field = whole(&C::dataloader_num_workers, between(0, 256)),
       .help = "threads per rank that prepare batches while earlier ones train; 0: the training "
               "thread prepares each batch itself. Any number gives the same batches",
       .task = KeyTask::sft},
      {.name = "dataloader_prefetch_factor",
       .field = whole(&C::dataloader_prefetch_factor, between(1, 1024)),
       .help = "steps that each thread of dataloader_num_workers prepares in advance",
       .task = KeyTask::sft},
      {.name = "dataloader_pin_memory",
       .aliases = {"pin_memory"},
       .field = flag(&C::dataloader_pin_memory),
       .help = "copies batches to the GPU through pinned memory, without waiting; false: through "
               "ordinary memory",
       .task = KeyTask::sft},
  };
}

std::vector<KeySpec> batch_keys() {
  using C = TrainConfig;
  return {
      {.name = "per_device_train_batch_size",
       .aliases = {"batch_size_per_gpu", "per_gpu_train_batch_size", "per_device_batch_size"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::to_string(c.per_device_train_batch_size); }),
       .help = "sequences (with packing: bins) in a micro-batch of one rank",
       .initial = "8",
       .value = "N"},
      {.name = "micro_batch_size",
       .help = "another name",
       .value = "N",
       .sets = "per_device_train_batch_size"},
      {.name = "batch_size",
       .help = "alone: per_device_train_batch_size; together with micro_batch_size: "
               "global_batch_size",
       .value = "N"},
      {.name = "global_batch_size",
       .aliases = {"train_batch_size", "total_batch_size"},
       .field = shown_as([](const TrainConfig& c) { return std::to_string(c.global_batch_size); }),
       .help = "sequences per optimizer step over all ranks; an error if it cannot be met exactly",
       .initial = "per device x accumulation x ranks",
       .value = "N"},
      {.name = "gradient_accumulation_steps",
       .aliases = {"grad_accum", "accumulation_steps", "gradient_accumulation"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::to_string(c.gradient_accumulation_steps); }),
       .help = "micro-batches of one rank per optimizer step",
       .initial = "1",
       .value = "N"},
      {.name = "per_device_eval_batch_size",
       .aliases = {"eval_batch_size", "per_gpu_eval_batch_size"},
       .field = whole(&C::per_device_eval_batch_size, at_least(1)),
       .help = "sequences in an evaluation batch of one rank"},
      {.name = "num_train_epochs",
       .aliases = {"num_epochs", "epochs", "n_epochs"},
       .field = number(&C::num_train_epochs, above(0)),
       .help = "number of passes over the training data"},
      {.name = "max_steps",
       .aliases = {"max_train_steps", "num_train_steps"},
       .field = whole(&C::max_steps, at_least(-1)),
       .help = "stops after this many optimizer steps, whatever num_train_epochs is; -1: no limit"},
  };
}
// clang-format on

}  // namespace mgpu::train
