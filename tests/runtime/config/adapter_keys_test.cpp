// The keys of LoRA, of quantized base models and of the kinds of adapters.

#include <string>
#include <vector>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("any LoRA key turns LoRA on", "[recipe]") {
  const auto* line = GENERATE("lora_r: 4", "lora_alpha: 8", "r: 4", "target_modules: [q_proj]",
                              "use_rslora: true", "adapter_path: a", "lora_target_linear: true");
  CAPTURE(line);
  const auto config = with(std::string(line) + "\n");
  CHECK(config.use_peft);
  CHECK(noted(config, "turns LoRA on"));
}

TEST_CASE("LoRA keys contradict use_peft: false", "[recipe]") {
  CHECK(mistake("use_peft: false\nlora_r: 4\n") ==
        "f:4: lora_r: contradicts use_peft (f:3); keep one");
  const auto config = with("lora_r: 4\n", {.set = {"use_peft=false"}});
  CHECK(!config.use_peft);
  CHECK(noted(config, "have no effect: use_peft turns LoRA off"));
  CHECK(!with("finetuning_type: full\n").use_peft);
  CHECK(with("adapter: qlora\n").load_in_4bit);
  CHECK_THAT(mistake("load_in_4bit: true\nuse_peft: false\n"), Contains("add lora_r"));
  CHECK_THAT(mistake("load_in_4bit: true\nfinetuning_type: full\n"), Contains("add lora_r"));
}

TEST_CASE("a recipe of LLaMA-Factory has its defaults of LoRA", "[recipe]") {
  const auto none = with("finetuning_type: lora\n");
  CHECK(none.lora_r == 8);
  CHECK(none.lora_alpha == 16);
  CHECK(noted(none, "sets lora_r: 8 and lora_alpha: 16, LLaMA-Factory's defaults; set these keys"));
  const auto ranked = with("finetuning_type: lora\nlora_rank: 64\n");
  CHECK(ranked.lora_alpha == 128);
  CHECK(noted(ranked, "sets lora_alpha: 128, LLaMA-Factory's default; set lora_alpha to choose"));
  const auto scaled = with("finetuning_type: lora\nlora_rank: 64\nlora_alpha: 16\n");
  CHECK(scaled.lora_alpha == 16);
  CHECK_FALSE(noted(scaled, "LLaMA-Factory's default"));
  CHECK_FALSE(noted(with("finetuning_type: lora\nadapter_name_or_path: a\n"), "LLaMA-Factory"));
  CHECK(with("lora_rank: 64\n").lora_alpha == 32);
}

TEST_CASE("the frozen model is in 4 or in 8 bits", "[recipe]") {
  CHECK(bits_of_base(with("load_in_8bit: true\nlora_r: 4\n")) == 8);
  CHECK(bits_of_base(with("quantization_bit: 8\n")) == 8);
  CHECK(bits_of_base(with("load_in_8bit: false\nload_in_4bit: true\n")) == 4);
  CHECK(noted(with("load_in_8bit: true\n"), "because 8-bit weights cannot be trained"));
  CHECK(mistake("load_in_4bit: true\nload_in_8bit: true\n") ==
        "f:4: load_in_8bit: contradicts load_in_4bit or qlora; keep one");
  CHECK_THAT(mistake("adapter: qlora\nload_in_8bit: true\n"), Contains("contradicts"));
  CHECK_THAT(mistake("load_in_8bit: true\nuse_peft: false\n"), Contains("add lora_r"));
  CHECK_THAT(mistake("quantization_bit: 3\n"), Contains("need 4 or 8"));
  CHECK(noted(with("load_in_8bit: true\nllm_int8_threshold: 6.0\n"), "has no effect"));
}

TEST_CASE("fp8 is for the frozen model or for the MLP", "[recipe]") {
  const auto fp8 = [](const std::string& lines) { return with(lines).fp8; };
  CHECK(fp8("") == Fp8::none);
  CHECK(fp8("fp8: false\n") == Fp8::none);
  CHECK(fp8("fp8: mlp\n") == Fp8::mlp);
  CHECK(fp8("fp8: base\nlora_r: 4\n") == Fp8::base);
  CHECK(fp8("fp8: true\n") == Fp8::mlp);
  CHECK(fp8("fp8: true\nlora_r: 4\n") == Fp8::base);
  CHECK(noted(with("fp8: true\nlora_r: 4\n"), "means fp8: base"));
  CHECK(noted(with("fp8: true\n"), "means fp8: mlp"));
  CHECK(with("fp8: base\n").use_peft);
  CHECK(noted(with("fp8: base\n"),
              "fp8: trains a LoRA adapter (lora_r: 16, lora_alpha: 32) on all linear "
              "layers, because 8-bit weights cannot be trained"));
  // Another key that is false is not the reason.
  CHECK(noted(with("fp8: base\nload_in_8bit: false\n"), "fp8: trains a LoRA adapter"));
  CHECK(noted(with("fp8: mlp\ndtype: fp32\n"), "multiplies in fp32"));
  CHECK(noted(with("fp8: mlp\nfp8_backend: auto\n"), "fp8_backend"));
}

TEST_CASE("fp8 is refused beside what contradicts it", "[recipe]") {
  const auto [lines, part] = GENERATE(table<std::string, std::string>(
      {{"fp8: base\nload_in_4bit: true\n", "contradicts 4-bit weights"},
       {"fp8: base\nadapter: qlora\n", "contradicts 4-bit weights"},
       {"fp8: true\nload_in_8bit: true\n", "contradicts load_in_8bit"},
       {"fp8: base\nuse_peft: false\n", "LoRA is off; add lora_r, or set fp8: mlp"},
       {"fp8: mlp\nlora_r: 4\n", "LoRA is on; set fp8: base"},
       {"fp8: base\nuse_dora: true\n", "cannot be combined with use_dora"},
       {"fp8: mlp\nfp16: true\n", "requires bf16"},
       {"fp8: mlp\ntask: grpo\nreward_funcs: [format]\n", "not supported by GRPO"},
       {"fp8: half\n", "need one of none, base, mlp"},
       {"fp8: base\ninit_lora_weights: pissa\n", "pissa changes the base weights"}}));
  CAPTURE(lines);
  CHECK_THAT(mistake(lines), Contains(part));
}

TEST_CASE("lora_target_linear stands for all linear layers", "[recipe]") {
  const auto targets = [](const std::string& text) { return with(text).lora_target_modules; };
  CHECK(targets("lora_target_linear: true\n").empty());
  CHECK(targets("lora_target_linear: true\nlora_target_modules: [q_proj]\n").empty());
  CHECK(targets("lora_target_linear: false\nlora_target_modules: [q_proj]\n") ==
        std::vector<std::string>{"q_proj"});
  CHECK_THAT(mistake("lora_target_linear: false\n"), Contains("list the layers"));
  CHECK_THAT(mistake("lora_target_linear: true\nlora_target_modules: [lm_head]\n"),
             Contains("lora_modules_to_save"));
}

TEST_CASE("PiSSA has the keys of PEFT and of LLaMA-Factory", "[recipe]") {
  CHECK(!with("lora_r: 4\n").pissa);
  CHECK(!with("lora_r: 4\ninit_lora_weights: true\n").pissa);
  CHECK(with("init_lora_weights: pissa\n").pissa == -1);
  CHECK(with("init_lora_weights: pissa_niter_4\n").pissa == 4);
  CHECK(with("pissa_init: true\npissa_convert: true\n").pissa == 16);
  CHECK(with("pissa_init: true\npissa_iter: -1\n").pissa == -1);
  CHECK(noted(with("lora_r: 4\npissa_iter: 8\n"), "has no effect without pissa_init"));
  for (const char* wrong : {"loftq", "olora", "false", "pissa_niter_x"})
    CHECK(!mistakes(std::string("lora_r: 4\ninit_lora_weights: ") + wrong + "\n").empty());
  const std::string pissa = "init_lora_weights: pissa\n";
  CHECK_THAT(mistake(pissa + "load_in_8bit: true\n"), Contains("4-bit or 8-bit"));
  CHECK_THAT(mistake(pissa + "use_dora: true\n"), Contains("use_dora"));
  CHECK_THAT(mistake(pissa + "adapter_path: a\n"), Contains("adapter_path"));
}

TEST_CASE("a kind of adapter turns LoRA on, unless it is off itself", "[recipe]") {
  CHECK(with("use_dora: true\n").use_peft);
  CHECK(with("loraplus_lr_ratio: 16\n").use_peft);
  for (const char* off : {"use_dora: false\n", "use_rslora: false\n", "pissa_init: false\n",
                          "init_lora_weights: true\n", "neftune_noise_alpha: 5\n"})
    CHECK(!with(off).use_peft);
  CHECK(noted(with("loraplus_lr_ratio: 4\nloraplus_lr_embedding: 1e-6\n"), "has no effect"));
}
