#include "runtime/config/command_line.hpp"

namespace mgpu::train {

std::string help_text() {
  return R"(Fine-tune a language model as a recipe says. mgpu-run starts one of these per GPU.

Usage: mgpu-train FILE.yaml [options]       train; alone it is one rank
       mgpu-train check FILE.yaml           what the recipe was understood to mean
       mgpu-train plan FILE.yaml            memory of a rank, and what fits
       mgpu-train init KIND [-o FILE]       a commented recipe: sft, grpo, lora, debug
       mgpu-train generate --model DIR      answers
       mgpu-train merge --model BASE --adapter DIR --output DIR
       mgpu-train quantize --model BASE --output DIR
       mgpu-train score --rewards NAME,... FILE.jsonl   what completions are worth

With a recipe:
      --set KEY=VALUE      changes a key; KEY.INNER for a value inside a map; repeatable
      --allow-unknown      unknown keys are notes, not errors
      --check              as the command check
      --single             one rank, although several GPUs are visible
check and plan:
      --gpus N             as if there were N GPUs [check what the recipe tells, plan those visible]
      --gpu-memory AMOUNT  as if each had so much, such as 32GB [the visible GPU's]
generate:
      --prompt TEXT        answers this
      --input FILE         or every row of a JSONL file
      --adapter DIR        with this adapter on the model
      --max-new-tokens N   ends an answer [256]
      --temperature T      0 always takes the likeliest token [1]
      --top-p P, --top-k K, --min-p P      samples from the likeliest only [1, 0: all, 0]
      --repetition-penalty X               makes what was said less likely [1]
      --stop TEXT          ends an answer too; repeatable
      --samples N          answers to each prompt [1]
      --seed N             of the sampling [42]
      --raw                the prompt as it is, without the chat template
      --details            with token ids, log-probabilities and why answers ended
      --sequences N        that are continued together [chosen]
  -o, --output FILE        where answers go [stdout]
Other:
  -h, --help; --version; keys (prints the reference of keys)

Exit status: 0 done; 2 a mistake on the command line or in the recipe; 128+N stopped by signal N;
1 any other failure. See docs/training.md.
)";
}

std::string version_text() {
  return "mgpu-train " MGPU_VERSION "\n";
}

}  // namespace mgpu::train
