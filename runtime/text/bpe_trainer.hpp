#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/word_counts.hpp"

namespace mgpu::text {

struct BpeTraining {
  std::size_t vocab_size = 8192;                 // tokens in all, including the special ones
  std::int64_t min_frequency = 2;                // a pair that is rarer is not merged
  std::vector<std::string> special_tokens = {};  // the first ids
};

struct LearnedBpe {
  std::vector<std::string> tokens;  // by id, in the letters of byte_alphabet.hpp
  std::vector<std::pair<std::string, std::string>> merges;  // highest priority first
};

// Learns byte-level byte pair encoding from words, which are bytes. Vocabulary and merges are those
// of BpeTrainer of Hugging Face's tokenizers with the same words and settings and the alphabet of
// all 256 bytes: the most frequent pair is merged first, of equally frequent ones that with the
// lowest ids. The vocabulary has fewer tokens if no pair is frequent enough. The number of tokens
// requested must be at least 256 + the special ones.
LearnedBpe learn_bpe(const WordCounts& words, const BpeTraining& training);

}  // namespace mgpu::text
