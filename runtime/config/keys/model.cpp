// The table's part about the task, the model, the data and the batch.

#include <stdexcept>

#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

std::string shown_sources(const std::vector<DataSource>& sources) {
  std::vector<std::string> words;
  for (const auto& source : sources)
    words.push_back(source.weight == 1 ? source.path
                                       : source.path + " x " + shown_number(source.weight));
  return words.size() == 1 ? words.front() : shown_words(words);
}

// axolotl's and LLaMA-Factory's names of templates are no files.
void set_chat_template(TrainConfig& config, const YamlNode& value) {
  const auto file = to_text(value);
  if (file.empty() || file.starts_with("tokenizer_default")) return;
  if (file.find_first_of("./") == file.npos || file.find('{') != file.npos)
    throw std::runtime_error(
        "need a file, such as chat_template.jinja; leave it out for the tokenizer's own");
  config.chat_template = file;
}

}  // namespace

// clang-format off: one paragraph a key reads better than one line a field.
std::vector<KeySpec> model_keys() {
  using C = TrainConfig;
  return {
      {.name = "task",
       .aliases = {"stage", "rl"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::string(c.task == Task::grpo ? "grpo" : "sft"); }),
       .help = "what is trained for",
       .initial = "grpo if reward_funcs or num_generations is there, else sft",
       .value = "sft|grpo"},
      {.name = "model_name_or_path",
       .aliases = {"base_model", "model_name", "model", "model_id", "policy_model", "model_path"},
       .field = text(&C::model_name_or_path),
       .help = "a folder in HF layout, or a Hub id that is in the local cache"},
      {.name = "model_revision",
       .aliases = {"revision_of_model", "revision"},
       .field = text(&C::model_revision),
       .help = "branch, tag or commit of a Hub id"},
      {.name = "model_size",
       .field =
           choice(&C::model_size,
                  {{"tiny", "tiny"}, {"small", "small"}, {"medium", "medium"}, {"large", "large"}}),
       .help = "a new model of this size instead of a checkpoint; needs tokenizer_path"},
      {.name = "tokenizer_path",
       .aliases = {"tokenizer_name_or_path", "tokenizer_name", "tokenizer"},
       .field = text(&C::tokenizer_path),
       .help = "folder of tokenizer.json, if not the model's"},
      {.name = "new_tokens",
       .aliases = {"tokens", "add_tokens", "added_tokens"},
       .field = words(&C::new_tokens),
       .help = "tokens added to the tokenizer; the embeddings grow with them"},
      {.name = "chat_template",
       .aliases = {"chat_template_path", "chat_template_jinja"},
       .field = {.value = "FILE",
                 .set = set_chat_template,
                 .show = [](const C& c) { return c.chat_template; }},
       .help = "a template file, if not the tokenizer's own"},
  };
}

std::vector<KeySpec> data_keys() {
  using C = TrainConfig;
  return {
      {.name = "dataset_name",
       .aliases = {"datasets", "dataset", "train_dataset", "train_file", "train_data", "data_path",
                   "dataset_path", "data_files", "dataset_name_or_path", "dataset_mixture"},
       .field = shown_as([](const TrainConfig& c) { return shown_sources(c.dataset_name); }),
       .help = "JSONL files: a path, a list of paths, or a list of {path, weight}",
       .value = "PATH|LIST"},
      {.name = "dataset_dir",
       .help = "folder before every relative path of dataset_name",
       .value = "DIR"},
      {.name = "eval_dataset",
       .aliases = {"eval_file", "test_datasets", "eval_dataset_name", "validation_file",
                   "val_dataset", "eval_data_path", "validation_datasets"},
       .field = shown_as([](const TrainConfig& c) { return shown_sources(c.eval_dataset); }),
       .help = "the same, to evaluate on",
       .value = "PATH|LIST"},
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
                                            {"alpaca", "alpaca"},
                                            {"instruction", "alpaca"}}),
       .help = "what a row looks like; auto: told from its columns"},
      {.name = "dataset_text_field",
       .aliases = {"text_field", "text_column"},
       .field = text(&C::dataset_text_field),
       .help = "the column of plain text"},
      {.name = "prompt_template",
       .field = text(&C::prompt_template),
       .help = "text with {column} in it, made of each row; for plain columns"},
      {.name = "val_set_size",
       .aliases = {"val_size", "validation_split_ratio", "test_split_size"},
       .field = number(&C::val_set_size, at_least(0)),
       .help = "rows held back to evaluate on: a fraction below 1, else how many"},
      {.name = "train_split",
       .help = "the fraction to train on; the rest is val_set_size",
       .value = "NUMBER",
       .sets = "val_set_size"},
      {.name = "max_length",
       .aliases = {"max_seq_length", "max_seq_len", "cutoff_len", "sequence_len",
                   "model_max_length", "seq_len", "block_size"},
       .field = whole(&C::max_length, at_least(2)),
       .help = "tokens of a sequence, or of a bin"},
      {.name = "packing",
       .aliases = {"sample_packing", "neat_packing"},
       .field = flag(&C::packing),
       .help = "several rows in one sequence, each seeing only itself",
       .task = KeyTask::sft},
      {.name = "eval_packing",
       .aliases = {"eval_sample_packing"},
       .field = flag(&C::eval_packing),
       .help = "the same when evaluating",
       .initial = "as packing",
       .task = KeyTask::sft},
      {.name = "packing_strategy",
       .help = "only best fit: bfd",
       .initial = "bfd",
       .value = "bfd",
       .task = KeyTask::sft},
      {.name = "group_by_length",
       .aliases = {"train_sampling_strategy"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::string(c.group_by_length ? "true" : "false"); }),
       .help = "rows of like length in one batch; also written train_sampling_strategy: "
               "group_by_length",
       .initial = "false",
       .value = "true|false"},
      {.name = "shuffle_dataset",
       .aliases = {"shuffle", "shuffle_merged_datasets"},
       .field = flag(&C::shuffle_dataset),
       .help = "a new order every epoch"},
      {.name = "completion_only_loss",
       .aliases = {"mask_prompt"},
       .field = flag(&C::completion_only_loss),
       .help = "loss on completions only; auto: where rows have them",
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
       .help = "loss on the assistant's turns only",
       .task = KeyTask::sft},
      {.name = "roles_to_train",
       .help = "[assistant] is assistant_only_loss: true",
       .value = "LIST",
       .sets = "assistant_only_loss",
       .task = KeyTask::sft},
      {.name = "on_bad_row",
       .field = choice(&C::on_bad_row, {{"error", BadRow::error}, {"skip", BadRow::skip}}),
       .help = "what a row that cannot be read does"},
      {.name = "dataset_prepared_path",
       .aliases = {"tokenized_path"},
       .field = text(&C::dataset_prepared_path),
       .help = "where token ids are cached",
       .initial = "beside the Hub cache"},
      {.name = "dataset_num_proc",
       .aliases = {"preprocessing_num_workers"},
       .field = whole(&C::dataset_num_proc, at_least(0)),
       .help = "threads that tokenise, per rank",
       .initial = "0: as many as its cores"},
  };
}

std::vector<KeySpec> batch_keys() {
  using C = TrainConfig;
  return {
      {.name = "per_device_train_batch_size",
       .aliases = {"batch_size_per_gpu", "per_gpu_train_batch_size", "per_device_batch_size"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::to_string(c.per_device_train_batch_size); }),
       .help = "sequences (with packing: bins) of one rank at a time",
       .initial = "8",
       .value = "N"},
      {.name = "micro_batch_size",
       .help = "another word for it",
       .value = "N",
       .sets = "per_device_train_batch_size"},
      {.name = "batch_size",
       .help = "alone: per_device_train_batch_size; beside micro_batch_size: global_batch_size",
       .value = "N"},
      {.name = "global_batch_size",
       .aliases = {"train_batch_size", "total_batch_size"},
       .field = shown_as([](const TrainConfig& c) { return std::to_string(c.global_batch_size); }),
       .help = "sequences of one step on all ranks together; exact, or an error",
       .initial = "per device x accumulation x ranks",
       .value = "N"},
      {.name = "gradient_accumulation_steps",
       .aliases = {"grad_accum", "accumulation_steps", "gradient_accumulation"},
       .field = shown_as(
           [](const TrainConfig& c) { return std::to_string(c.gradient_accumulation_steps); }),
       .help = "batches of a rank in one step",
       .initial = "1",
       .value = "N"},
      {.name = "per_device_eval_batch_size",
       .aliases = {"eval_batch_size", "per_gpu_eval_batch_size"},
       .field = whole(&C::per_device_eval_batch_size, at_least(1)),
       .help = "sequences of one rank at a time when evaluating"},
      {.name = "num_train_epochs",
       .aliases = {"num_epochs", "epochs", "n_epochs"},
       .field = number(&C::num_train_epochs, above(0)),
       .help = "passes over the data"},
      {.name = "max_steps",
       .aliases = {"max_train_steps", "num_train_steps"},
       .field = whole(&C::max_steps, at_least(-1)),
       .help = "ends the run after so many steps, whatever num_train_epochs says; -1: does not"},
  };
}
// clang-format on

}  // namespace mgpu::train
