#include "runtime/data/shard.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "runtime/data/digest.hpp"

namespace mgpu::data {

namespace {

constexpr std::string_view kMagic = "mgpuTOK1";
constexpr std::size_t kKeyBytes = 64;
constexpr std::string_view kToolsNote = "tools ";
constexpr std::size_t kMaxNotes = 8;
constexpr std::size_t kLongestNote = 500;

struct Header {
  std::array<char, 8> magic{};
  std::uint64_t sum = 0;
  std::array<char, kKeyBytes> key{};
  std::uint64_t piece = 0;
  std::uint64_t examples = 0, tokens = 0, rows = 0, bad = 0, lost = 0, note_bytes = 0;
  std::uint64_t explicit_labels = 0;
};
static_assert(sizeof(Header) == 144);
constexpr std::size_t kSummedFrom = offsetof(Header, key);

// The offsets of the sections, shared by writer and reader.
struct Layout {
  std::uint64_t starts = sizeof(Header), label_counts, lines, mask, ids, labels, notes, end;

  explicit Layout(const Header& h) {
    const auto behind = [](std::uint64_t at, std::uint64_t bytes) {
      return (at + bytes + 7) / 8 * 8;
    };
    label_counts = behind(starts, (h.examples + 1) * 8);
    lines = behind(label_counts, h.examples * 4);
    mask = behind(lines, h.examples * 4);
    ids = behind(mask, (h.tokens + 7) / 8);
    labels = behind(ids, h.tokens * 4);
    notes = behind(labels, h.explicit_labels ? h.tokens * 4 : 0);
    end = notes + h.note_bytes;
  }
};

template <class T>
void put(std::string& out, std::uint64_t at, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(out.data() + at, values.data(), values.size() * sizeof(T));
}

template <class T>
const T* section(std::string_view bytes, std::uint64_t at) {
  return reinterpret_cast<const T*>(bytes.data() + at);
}

Header checked_header(const std::filesystem::path& path, std::string_view bytes,
                      std::string_view key, std::uint64_t piece) {
  const auto refuse = [&](const char* why) { throw ShardError(path.string() + " " + why); };
  Header header;
  if (bytes.size() < sizeof(header)) refuse("is truncated");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::string_view(header.magic.data(), kMagic.size()) != kMagic)
    refuse("is not a token cache");
  if (std::string_view(header.key.data(), kKeyBytes) != key || header.piece != piece)
    refuse("belongs to other data");
  if (header.sum != checksum(bytes.substr(kSummedFrom))) refuse("is damaged");
  // Anybody can compute the checksum, and others may write to a cache folder that is shared.
  if (header.examples > bytes.size() || header.tokens > bytes.size() ||
      header.note_bytes > bytes.size() || Layout(header).end != bytes.size())
    refuse("is damaged");
  return header;
}

}  // namespace

void ShardWriter::add(const Example& example, std::uint64_t line) {
  ++rows_;
  std::uint32_t labels = 0;
  for (std::size_t i = 0; i < example.ids.size(); ++i) {
    if (example.labels[i] == kNoTarget) continue;
    if (i > 0) ++labels;
    if (example.labels[i] != example.ids[i]) explicit_labels_ = true;
  }
  ids_.insert(ids_.end(), example.ids.begin(), example.ids.end());
  labels_.insert(labels_.end(), example.labels.begin(), example.labels.end());
  starts_.push_back(ids_.size());
  label_counts_.push_back(labels);
  lines_.push_back(static_cast<std::uint32_t>(line));
  if (example.unwritten_tools) ++unwritten_tools_;
  if (!example.lost_prompt) return;
  ++lost_;
  if (lost_ <= kMaxNotes) note("lost", line, *example.lost_prompt);
}

void ShardWriter::add_bad(std::uint64_t line, std::string_view what) {
  ++rows_;
  ++bad_;
  if (bad_ <= kMaxNotes) note("bad", line, what);
}

void ShardWriter::note(const char* kind, std::uint64_t line, std::string_view text) {
  notes_ += fmt::format("{} {} {}\n", kind, line, printable(text, kLongestNote));
}

std::string ShardWriter::finish(std::string_view key, std::uint64_t piece) const {
  const std::string notes =
      (unwritten_tools_ > 0 ? fmt::format("{}{}\n", kToolsNote, unwritten_tools_) : "") + notes_;
  Header header{.piece = piece,
                .examples = label_counts_.size(),
                .tokens = ids_.size(),
                .rows = rows_,
                .bad = bad_,
                .lost = lost_,
                .note_bytes = notes.size(),
                .explicit_labels = explicit_labels_ ? 1U : 0U};
  if (key.size() != kKeyBytes) throw std::logic_error("a cache key must have 64 digits");
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  std::copy(key.begin(), key.end(), header.key.begin());

  const Layout layout(header);
  std::string out(layout.end, '\0');
  put(out, layout.starts, starts_);
  put(out, layout.label_counts, label_counts_);
  put(out, layout.lines, lines_);
  for (std::size_t i = 0; i < labels_.size(); ++i)
    if (labels_[i] != kNoTarget) {
      char& byte = out[layout.mask + i / 8];
      byte = static_cast<char>(static_cast<unsigned char>(byte) | 1U << i % 8);
    }
  put(out, layout.ids, ids_);
  if (explicit_labels_) put(out, layout.labels, labels_);
  std::copy(notes.begin(), notes.end(), out.begin() + static_cast<std::ptrdiff_t>(layout.notes));

  std::memcpy(out.data(), &header, sizeof(header));
  header.sum = checksum(std::string_view(out).substr(kSummedFrom));
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

Shard::Shard(const std::filesystem::path& path, std::string_view key, std::uint64_t piece,
             std::int64_t vocabulary)
    : file_(path) {
  const std::string_view bytes = file_.bytes();
  const Header header = checked_header(path, bytes, key, piece);
  const Layout layout(header);
  rows_ = header.rows;
  bad_ = header.bad;
  lost_ = header.lost;
  starts_ = {section<std::uint64_t>(bytes, layout.starts), header.examples + 1};
  label_counts_ = {section<std::uint32_t>(bytes, layout.label_counts), header.examples};
  lines_ = {section<std::uint32_t>(bytes, layout.lines), header.examples};
  mask_ = section<std::uint8_t>(bytes, layout.mask);
  ids_ = section<std::int32_t>(bytes, layout.ids);
  if (header.explicit_labels) labels_ = section<std::int32_t>(bytes, layout.labels);
  notes_ = bytes.substr(layout.notes, header.note_bytes);
  if (notes_.starts_with(kToolsNote)) {
    const auto line = take_line(notes_).substr(kToolsNote.size());
    std::from_chars(line.data(), line.data() + line.size(), unwritten_tools_);
  }
  bool in_order = starts_.front() == 0 && starts_.back() == header.tokens;
  for (std::size_t i = 0; in_order && i < header.examples; ++i)
    in_order = starts_[i] <= starts_[i + 1] && label_counts_[i] <= starts_[i + 1] - starts_[i];
  if (!in_order) throw ShardError(path.string() + " is damaged");
  if (!has_only_ids_below(vocabulary > 0 ? vocabulary : std::int64_t{1} << 31))
    throw ShardError(path.string() + " has token ids that the model does not have");
}

bool Shard::has_only_ids_below(std::int64_t limit) const {
  const auto is_valid = [limit](std::int32_t id) { return id >= 0 && id < limit; };
  for (std::uint64_t i = 0; i < starts_.back(); ++i) {
    if (!is_valid(ids_[i])) return false;
    if (labels_ && (mask_[i / 8] >> (i % 8) & 1U) != 0 && !is_valid(labels_[i])) return false;
  }
  return true;
}

Sequence Shard::operator[](std::size_t i) const {
  return {.ids = {ids_ + starts_[i], ids_ + starts_[i + 1]},
          .mask = mask_,
          .first = starts_[i],
          .labels = labels_};
}

std::uint32_t Shard::label_count(std::size_t i, std::size_t length) const {
  const Sequence sequence = (*this)[i];
  if (length >= sequence.ids.size()) return label_counts_[i];
  std::uint32_t count = 0;
  for (std::size_t token = 1; token < length; ++token) {
    const std::uint64_t at = sequence.first + token;
    count += mask_[at / 8] >> (at % 8) & 1U;
  }
  return count;
}

std::vector<ShardNote> Shard::notes() const {
  std::vector<ShardNote> out;
  std::string_view rest = notes_;
  while (!rest.empty() && out.size() < 2 * kMaxNotes) {  // of either kind
    const std::string_view line = take_line(rest);
    const std::size_t number = line.find(' ') + 1;
    const std::size_t text = line.find(' ', number) + 1;
    ShardNote& note = out.emplace_back(ShardNote{
        .bad = line.starts_with("bad"), .text = printable(line.substr(text), kLongestNote)});
    std::from_chars(line.data() + number, line.data() + line.size(), note.line);
  }
  return out;
}

}  // namespace mgpu::data
