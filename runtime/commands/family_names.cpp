#include "runtime/commands/family_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

namespace mgpu::recipes {
namespace {

// Families that names of models consist of. A version may follow: phi3, qwen3.5.
constexpr std::array<std::string_view, 55> kFamilies{
    "afm",       "apertus",    "arcee",   "bloom",    "btlm",     "c4ai",     "cerebras",
    "chatglm",   "command",    "dbrx",    "ernie",    "exaone",   "falcon",   "gemma",
    "glm",       "gpt",        "granite", "hunyuan",  "internlm", "internvl", "jamba",
    "kimi",      "lfm2",       "llava",   "mamba",    "mimo",     "minicpm",  "minimax",
    "mixtral",   "moss",       "mpt",     "nemotron", "olmo",     "opt",      "orion",
    "paddleocr", "phi",        "pixtral", "plamo",    "pythia",   "qwen1",    "redpajama",
    "replit",    "rwkv",       "seed",    "smollm3",  "smolvlm",  "stablelm", "starchat2",
    "starcoder", "starcoder2", "t5",      "trinity",  "voxtral",  "xgen"};

// Beginnings of names whose family is supported in other sizes or versions.
constexpr std::array<std::string_view, 13> kVersions{
    "deepseek-v2",     "deepseek-v3",     "deepseek-v4",         "llama-4", "ministral-3",
    "mistral-small-3", "mistral-small-4", "mistral-medium",      "qwen-7b", "qwen3.5",
    "qwen3-next",      "skywork-reward",  "magistral-small-2509"};

// Beginnings of words of supported families: a name with one of them may also have that of another
// family, whose data it was trained on.
constexpr std::array<std::string_view, 6> kSupported{"llama", "codellama", "tinyllama",
                                                     "qwen2", "qwen3",     "mistral"};

struct Sign {
  std::string_view word;
  std::string_view kind;
};

constexpr std::array kSigns{
    Sign{"vl", "a model for images"},    Sign{"vision", "a model for images"},
    Sign{"omni", "a multimodal model"},  Sign{"audio", "a model for audio"},
    Sign{"moe", "a mixture of experts"}, Sign{"gptq", "quantized by GPTQ"},
    Sign{"awq", "quantized by AWQ"},     Sign{"aqlm", "quantized by AQLM"},
    Sign{"nvfp4", "quantized to FP4"},   Sign{"mxfp4", "quantized to FP4"},
    Sign{"gguf", "a GGUF file"},         Sign{"prequantized", "quantized to other formats"}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "a3b": the active parameters of a mixture of experts; "8x7b", "17b-128e" and "16e": its experts.
bool is_experts(std::string_view word) {
  if (word.size() >= 3 && word.front() == 'a' && word.back() == 'b' && is_digit(word[1]))
    return true;
  const auto x = word.find('x');
  if (x != word.npos && x > 0 && is_digit(word[x - 1]) && word.back() == 'b') return true;
  return word.size() >= 2 && word.back() == 'e' &&
         std::all_of(word.begin(), word.end() - 1, is_digit);
}

bool is_version_of(std::string_view word, std::string_view family) {
  return word.starts_with(family) &&
         std::all_of(word.begin() + static_cast<std::ptrdiff_t>(family.size()), word.end(),
                     [](char c) { return is_digit(c) || c == '.' || c == 'n'; });
}

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '-' || c == '_' || c == ' ')
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

}  // namespace

std::string unsupported_by_name(const std::string& model) {
  auto name = model.substr(model.rfind('/') + 1);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto begin : kVersions)
    if (name.starts_with(begin)) return fmt::format("a {} model", begin);
  const auto words = words_of(name);
  const bool supported = std::ranges::any_of(words, [](const auto& word) {
    return std::ranges::any_of(kSupported, [&](auto own) { return word.starts_with(own); });
  });
  for (const auto& word : words) {
    if (is_experts(word)) return "a mixture of experts";
    for (const auto& sign : kSigns)
      if (word == sign.word) return std::string(sign.kind);
    for (const auto family : kFamilies)
      if (!supported && is_version_of(word, family)) return fmt::format("a {} model", family);
  }
  return {};
}

}  // namespace mgpu::recipes
