#include "runtime/config/command_line.hpp"

namespace mgpu::train {

std::string help_text() {
  return R"(Fine-tunes a language model as described in a recipe. mgpu-run starts one process per GPU.

Usage: mgpu-train FILE.yaml [options]       train; run directly, it uses one GPU
       mgpu-train check FILE.yaml           show how the recipe is interpreted
       mgpu-train plan FILE.yaml            show the memory per GPU and batch sizes that fit
       mgpu-train plan --model-size 7B      suggest a recipe that fits; --write FILE writes it
       mgpu-train data FILE.yaml            show rows as the model sees them, and what is dropped
       mgpu-train tokenize FILE.yaml        tokenize the dataset ahead of time
       mgpu-train train-tokenizer FILE... --output DIR              train a tokenizer on text
       mgpu-train quickstart [FOLDER]       write a small example that trains in a minute
       mgpu-train init KIND [-o FILE]       write a commented recipe: sft, grpo, lora, debug
       mgpu-train generate --model DIR      generate completions
       mgpu-train merge --model BASE --adapter DIR --output DIR     merge an adapter
       mgpu-train quantize --model BASE --output DIR                convert to 4 bits (NF4)
       mgpu-train score --rewards NAME,... FILE.jsonl               compute rewards
       mgpu-train keys | version | help     print all recipe keys, the version, this text

With a recipe (training, check, plan, data, tokenize), which --set alone can be too:
      --set KEY=VALUE      change a key; KEY.INNER changes one value inside a map; repeatable
      --allow-unknown      report unknown keys as notes instead of errors
      --check, --single    same as the command check; train on one GPU even if several are visible
      --gpus N, --rows N   check, plan: for N GPUs [the recipe's, else visible]; data: rows [3]
      --gpu-memory AMOUNT  plan: assume this memory per GPU, such as 32GB [visible GPU]
generate:
      --prompt TEXT, --input FILE          complete this, or the prompt of each row of a JSONL file
      --adapter DIR, --max-new-tokens N    LoRA adapter; maximum tokens per completion [256]
      --temperature T, --top-p P, --top-k K, --min-p P    sampling [1, 1, 0, 0]; T 0: none
      --repetition-penalty X               above 1: make repeated tokens less likely [1]
      --stop TEXT          end a completion at this text; repeatable
      --allowed FILE       generate only these: a JSON string or a list of token ids per line
      --samples N, --seed N                completions per prompt [1], sampling seed [42]
      --beams N, --length-penalty X, --early-stopping no|yes|never    beam search [off, 1, no]
      --raw, --details     no chat template; add token ids, log-probabilities and why it ended
      --sequences N        completions to generate concurrently [chosen automatically]
train-tokenizer: --kind bpe|characters, --vocab-size N, --min-frequency N, --text-field NAME
init, generate, score:
  -o, --output FILE        write to this file [stdout]; score: --settings JSON sets up rewards

Exit status: 0 success; 2 error on the command line, in the recipe or in its files; 128+N stopped
by signal N; 1 any other error. Documentation: docs/training.md, docs/grpo.md, docs/keys.md.
)";
}

std::string version_text() {
  return "mgpu-train " MGPU_VERSION "\n";
}

}  // namespace mgpu::train
