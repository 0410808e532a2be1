#include "runtime/text/bpe.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

constexpr std::string_view kMark = "\u2581";  // SentencePiece's mark for a space

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

// The end of the part that begins at `from`: before the next mark that follows another character.
std::size_t part_end(std::string_view word, std::size_t from) {
  std::size_t at = from;
  while (word.substr(at).starts_with(kMark)) at += kMark.size();
  return std::min(word.find(kMark, at), word.size());
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, std::span<const Merge> merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), merges_(merges.size()) {
  find_first_ids();
  splits_at_marks_ =
      !options_.byte_level && !options_.ignore_merges && vocabulary_.find(kMark).has_value();
  for (std::size_t i = 0; i < merges.size(); ++i) {
    add_merge(merges[i], static_cast<std::uint32_t>(i));
  }
}

void Bpe::find_first_ids() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = fallback_ids_[byte] = -1;
    const std::string letter = options_.byte_level ? byte_letters()[byte]
                               : byte < 0x80       ? std::string(1, static_cast<char>(byte))
                                                   : std::string();
    if (!letter.empty()) byte_ids_[byte] = vocabulary_.find(letter).value_or(-1);
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void Bpe::add_merge(const Merge& merge, std::uint32_t rank) {
  const auto& [left, right] = merge;
  const std::string both = std::string(left) + std::string(right);
  const auto id_of = [&](std::string_view token) {
    if (const auto id = vocabulary_.find(token)) return *id;
    throw rendezvous::InputError(fmt::format(
        "merge {} (\"{}\" and \"{}\") needs the token \"{}\", which is not in the vocabulary", rank,
        left, right, token));
  };
  const std::int32_t left_id = id_of(left);
  const std::int32_t right_id = id_of(right);
  merges_[pair_key(left_id, right_id)] = {rank, id_of(both)};  // the last of two entries is used
  if (splits_at_marks_ && part_end(both, 0) != both.size()) splits_at_marks_ = false;
}

void Bpe::encode(std::string_view word, Workspace& workspace,
                 std::vector<std::int32_t>& ids) const {
  if (!splits_at_marks_) return encode_part(word, workspace, ids);
  // No merge crosses these cuts, so the parts can be encoded and cached separately.
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = part_end(word, at);
    encode_part(word.substr(at, end - at), workspace, ids);
    at = end;
  }
}

void Bpe::encode_part(std::string_view word, Workspace& workspace,
                      std::vector<std::int32_t>& ids) const {
  workspace.cache_.append(word, ids, [&] { encode_new(word, workspace, ids); });
}

void Bpe::encode_new(std::string_view word, Workspace& workspace,
                     std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    const auto whole =
        options_.byte_level ? vocabulary_.find(to_byte_letters(word)) : vocabulary_.find(word);
    if (whole) return ids.push_back(*whole);
  }
  symbols_of(word, workspace);
  if (workspace.symbols_.empty()) return;
  merge(workspace);
  for (std::int32_t at = 0; at >= 0; at = workspace.symbols_[at].next) {
    ids.push_back(workspace.symbols_[at].id);
  }
}

void Bpe::symbols_of(std::string_view word, Workspace& workspace) const {
  auto& symbols = workspace.symbols_;
  symbols.clear();
  Unknown unknown;
  for (std::size_t at = 0; at < word.size();) {
    const auto byte = static_cast<unsigned char>(word[at]);
    const std::size_t size = options_.byte_level ? 1 : code_point_at(word, at).size;
    if (byte_ids_[byte] >= 0 && !unknown.pending) {
      symbols.push_back({byte_ids_[byte], 0, 0});
    } else {
      add_letter(options_.byte_level ? byte_letters()[byte] : word.substr(at, size), workspace,
                 unknown);
    }
    at += size;
  }
  if (unknown.pending) symbols.push_back({unk_id(), 0, 0});
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<std::int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<std::int32_t>(i) + 1 : -1;
  }
}

void Bpe::add_letter(std::string_view letter, Workspace& workspace, Unknown& unknown) const {
  auto& symbols = workspace.symbols_;
  if (const auto id = vocabulary_.find(letter)) {
    if (unknown.pending) symbols.push_back({unk_id(), 0, 0});
    unknown.pending = false;
    symbols.push_back({*id, 0, 0});
    return;
  }
  // The tokens of bytes come before a preceding run of unknown characters, as in HF's tokenizers.
  if (options_.byte_fallback && add_fallback(letter, workspace)) return;
  if (!options_.unk_token) return;
  if (unknown.pending && !options_.fuse_unk) symbols.push_back({unk_id(), 0, 0});
  unknown.pending = true;
}

bool Bpe::add_fallback(std::string_view letter, Workspace& workspace) const {
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  for (const char byte : letter) {
    if (id_of(byte) < 0) return false;
  }
  for (const char byte : letter) workspace.symbols_.push_back({id_of(byte), 0, 0});
  return true;
}

std::int32_t Bpe::unk_id() const {
  if (const auto id = vocabulary_.find(*options_.unk_token)) return *id;
  throw rendezvous::InputError(fmt::format(
      "the text has a character that is not in the vocabulary, and neither is the unk_token \"{}\"",
      *options_.unk_token));
}

void Bpe::push_candidate(std::int32_t at, Workspace& workspace) const {
  const auto& left = workspace.symbols_[at];
  if (left.next < 0) return;
  const std::int32_t right = workspace.symbols_[left.next].id;
  if (const Merged* const merged = merges_.find(pair_key(left.id, right))) {
    workspace.heap_.push_back({merged->rank, at, left.id, right, merged->id});
  }
}

// Merges the pair with the highest priority, the leftmost of several, until no pair can be merged.
void Bpe::merge(Workspace& workspace) const {
  auto& symbols = workspace.symbols_;
  auto& heap = workspace.heap_;
  const auto later = [](const auto& a, const auto& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  heap.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    push_candidate(static_cast<std::int32_t>(i), workspace);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto consider_later = [&](std::int32_t at) {
    const std::size_t before = heap.size();
    push_candidate(at, workspace);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto best = heap.back();
    heap.pop_back();
    auto& left = symbols[best.at];
    if (left.id != best.left || left.next < 0) continue;
    auto& right = symbols[left.next];
    if (right.id != best.right) continue;

    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.at;
    consider_later(best.at);
    if (left.previous >= 0) consider_later(left.previous);
  }
}

}  // namespace mgpu::text
