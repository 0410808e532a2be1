#include "runtime/text/unigram.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

constexpr double kUnknownPenalty = 10;  // how much less than the worst piece

// At each position of a text the whole longest piece may be compared.
constexpr std::size_t kLongestPiece = 1024;

// Each byte of a piece may need a node of the tree.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), options_(options) {
  const auto count = static_cast<std::int32_t>(scores_.size());
  if (options_.unk_id && *options_.unk_id >= count) {
    throw rendezvous::InputError(
        fmt::format("unk_id {} of model Unigram is not in its {} pieces", *options_.unk_id, count));
  }
  std::size_t bytes = 0;
  for (std::int32_t id = 0; id < count; ++id) {
    const std::string& piece = *vocabulary_.token(id);
    if (piece.size() > kLongestPiece) {
      throw rendezvous::InputError(fmt::format(
          "piece {} of model Unigram has {} bytes, more than {}", id, piece.size(), kLongestPiece));
    }
    bytes += piece.size();
  }
  if (bytes > kMostBytes)
    throw rendezvous::InputError(
        fmt::format("the pieces of model Unigram have more than {} MiB", kMostBytes >> 20));
  for (std::int32_t id = 0; id < count; ++id) pieces_.add(*vocabulary_.token(id), id);
  if (count > 0)
    unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
}

std::int32_t Unigram::unk_id() const {
  if (options_.unk_id) return *options_.unk_id;
  throw rendezvous::InputError(
      "the text has a character that is not in the vocabulary, and the model has no unk_id");
}

void Unigram::encode(std::string_view word, Workspace& workspace,
                     std::vector<std::int32_t>& ids) const {
  workspace.cache_.append(word, ids, [&] { encode_new(word, workspace, ids); });
}

void Unigram::encode_new(std::string_view word, Workspace& workspace,
                         std::vector<std::int32_t>& ids) const {
  find_best(word, workspace.best_);
  collect_parts(word.size(), workspace);
  for (const auto& part : workspace.parts_) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      append_unknown(word.substr(part.begin, part.end - part.begin), ids);
    }
  }
}

// Viterbi's algorithm. Of two divisions with the same score the one found first is kept.
void Unigram::find_best(std::string_view word, std::vector<Workspace::Best>& best) const {
  best.assign(word.size() + 1, {});
  for (std::size_t begin = 0; begin < word.size();) {
    const double before = best[begin].score;
    const auto consider = [&](std::size_t end, std::int32_t id, double score) {
      auto& target = best[end];
      if (target.begin >= 0 && before + score <= target.score) return;
      target = {before + score, static_cast<std::int32_t>(begin), id};
    };
    const std::size_t next = begin + code_point_at(word, begin).size;
    bool single = false;  // whether the character alone is a piece
    std::int32_t node = ByteTrie::kRoot;
    for (std::size_t at = begin; at < word.size(); ++at) {
      node = pieces_.next(node, word[at]);
      if (node < 0) break;
      const std::int32_t id = pieces_.id(node);
      if (id < 0) continue;
      consider(at + 1, id, scores_[static_cast<std::size_t>(id)]);
      if (at + 1 == next) single = true;
    }
    if (!single) consider(next, unk_id(), unknown_score_);
    begin = next;
  }
}

// The pieces of the best division, in order. Unknown characters in a row are one part.
void Unigram::collect_parts(std::size_t size, Workspace& workspace) const {
  auto& parts = workspace.parts_;
  parts.clear();
  for (std::size_t end = size; end > 0;) {
    const auto& last = workspace.best_[end];
    const auto begin = static_cast<std::size_t>(last.begin);
    const bool unknown = last.id == options_.unk_id;
    if (unknown && !parts.empty() && parts.back().id < 0) {
      parts.back().begin = begin;
    } else {
      parts.push_back({begin, end, unknown ? -1 : last.id});
    }
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
}

// A run of unknown characters can together be a piece, such as the text of the unknown token.
void Unigram::append_unknown(std::string_view run, std::vector<std::int32_t>& ids) const {
  if (const auto whole = vocabulary_.find(run)) return ids.push_back(*whole);
  const std::size_t before = ids.size();
  for (std::size_t i = 0; options_.byte_fallback && i < run.size(); ++i) {
    const auto byte =
        vocabulary_.find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(run[i])));
    if (!byte) {
      ids.resize(before);
      break;
    }
    ids.push_back(*byte);
  }
  if (ids.size() == before) ids.push_back(unk_id());
}

}  // namespace mgpu::text
