#include "runtime/text/bpe_trainer.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <unordered_map>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/hash.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

// The tokens known so far.
class TokenTable {
 public:
  // The id of a token, which is added if it is new.
  std::int32_t id_of(const std::string& token) {
    const auto [found, added] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return found->second;
  }
  const std::string& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return tokens_.size(); }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> tokens_;
};

struct Pair {
  std::int32_t left = 0, right = 0;

  std::uint64_t key() const {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  static Pair of(std::uint64_t key) {
    return {static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xFFFFFFFF)};
  }
};

// How often each pair of neighbors occurs, and the queue of pairs to merge. An entry of the queue
// has the count that its pair had when it was added, and is corrected when it comes first.
class PairQueue {
 public:
  struct Entry {
    std::int64_t count = 0;
    std::uint64_t pair = 0;
    std::size_t words = 0;  // index in words_

    bool operator<(const Entry& other) const {  // of equal counts the lowest pair comes first
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  // Counts `times` more occurrences of a pair, in this word if there are more.
  void count(Pair pair, std::int64_t times, std::uint32_t word) {
    const auto key = pair.key();
    State& state = states_[key];
    state.count += times;
    if (times <= 0) return;
    if (state.round != round_) {
      state.round = round_;
      state.added = static_cast<std::uint32_t>(added_.size());
      added_.push_back({key, {}});
    }
    auto& words = added_[state.added].words;
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  // Adds the pairs whose count has grown since the last call to the queue.
  void add_counted() {
    for (auto& [key, words] : added_) {
      const auto count = states_[key].count;
      if (count <= 0) continue;
      queue_.push({count, key, words_.size()});
      words_.push_back(std::move(words));
    }
    added_.clear();
    ++round_;
  }

  // Removes the most frequent pair, of which the count is up to date. False: none is left.
  bool pop(Entry& entry) {
    while (!queue_.empty()) {
      entry = queue_.top();
      queue_.pop();
      const auto count = states_[entry.pair].count;
      if (count == entry.count) return true;
      if (count <= 0) continue;
      entry.count = count;
      queue_.push(entry);
    }
    return false;
  }
  std::vector<std::uint32_t> take_words(const Entry& entry) {
    return std::move(words_[entry.words]);
  }

 private:
  struct State {
    std::int64_t count = 0;
    std::uint32_t round = 0, added = 0;
  };
  struct Added {
    std::uint64_t pair;
    std::vector<std::uint32_t> words;
  };

  IntMap<State> states_{1 << 16};
  std::vector<Added> added_;
  std::uint32_t round_ = 1;
  std::priority_queue<Entry> queue_;
  std::vector<std::vector<std::uint32_t>> words_;
};

// The words as ids of tokens.
class SymbolWords {
 public:
  SymbolWords(const WordCounts& words, const std::array<std::int32_t, 256>& byte_ids) {
    for (const auto& [word, count] : words.sorted()) {
      words_.push_back({.begin = ids_.size(), .size = word.size(), .count = count});
      for (const char byte : word) ids_.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    }
  }

  void count_pairs(PairQueue& queue) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const auto& word = words_[i];
      for (std::size_t at = word.begin; at + 1 < word.begin + word.size; ++at)
        queue.count({ids_[at], ids_[at + 1]}, word.count, static_cast<std::uint32_t>(i));
    }
  }

  // Merges every occurrence of the pair in a word, left to right, and counts the pairs that go and
  // those that come.
  void merge(std::uint32_t number, Pair pair, std::int32_t merged, PairQueue& queue) {
    auto& word = words_[number];
    auto* const ids = ids_.data() + word.begin;
    std::size_t to = 0;
    for (std::size_t from = 0; from < word.size; ++to) {
      if (from + 1 >= word.size || ids[from] != pair.left || ids[from + 1] != pair.right) {
        ids[to] = ids[from++];
        continue;
      }
      if (to > 0) {
        queue.count({ids[to - 1], pair.left}, -word.count, number);
        queue.count({ids[to - 1], merged}, word.count, number);
      }
      from += 2;
      if (from < word.size) {
        queue.count({pair.right, ids[from]}, -word.count, number);
        queue.count({merged, ids[from]}, word.count, number);
      }
      ids[to] = merged;
    }
    word.size = to;
  }

 private:
  struct Word {
    std::size_t begin, size;
    std::int64_t count;
  };
  std::vector<std::int32_t> ids_;
  std::vector<Word> words_;
};

// Adds the letters of all bytes, in the order of their code points.
std::array<std::int32_t, 256> add_alphabet(TokenTable& table) {
  std::array<std::uint8_t, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::sort(bytes.begin(), bytes.end(), [](auto a, auto b) {
    return code_point_at(byte_letters()[a], 0).value < code_point_at(byte_letters()[b], 0).value;
  });
  std::array<std::int32_t, 256> ids{};
  for (const auto byte : bytes) ids[byte] = table.id_of(byte_letters()[byte]);
  return ids;
}

// Of a pair that was merged several times, the last place counts.
std::vector<std::pair<std::string, std::string>> as_texts(const std::vector<std::uint64_t>& merges,
                                                          const TokenTable& table) {
  IntMap<std::size_t> last(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) last[merges[i]] = i;
  std::vector<std::pair<std::string, std::string>> texts;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (*last.find(merges[i]) != i) continue;
    const auto pair = Pair::of(merges[i]);
    texts.emplace_back(table.token(pair.left), table.token(pair.right));
  }
  return texts;
}

}  // namespace

LearnedBpe learn_bpe(const WordCounts& words, const BpeTraining& training) {
  if (training.vocab_size < 256 + training.special_tokens.size())
    throw rendezvous::InputError(
        fmt::format("a vocabulary of {} tokens is too small: need at least {} for all bytes and "
                    "the special tokens",
                    training.vocab_size, 256 + training.special_tokens.size()));
  TokenTable table;
  for (const auto& token : training.special_tokens) table.id_of(token);
  SymbolWords symbols(words, add_alphabet(table));
  PairQueue queue;
  symbols.count_pairs(queue);
  queue.add_counted();

  std::vector<std::uint64_t> merges;
  PairQueue::Entry best;
  while (table.size() < training.vocab_size && queue.pop(best)) {
    if (best.count < std::max<std::int64_t>(1, training.min_frequency)) break;
    const auto pair = Pair::of(best.pair);
    const auto merged = table.id_of(table.token(pair.left) + table.token(pair.right));
    merges.push_back(best.pair);
    for (const auto word : queue.take_words(best)) symbols.merge(word, pair, merged, queue);
    queue.add_counted();
  }
  auto texts = as_texts(merges, table);
  return {.tokens = table.take(), .merges = std::move(texts)};
}

}  // namespace mgpu::text
