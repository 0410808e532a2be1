#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace mgpu::launcher {

// Splits a byte stream into whole lines, so that lines of several ranks are never mixed. A line
// ends with \n, \r\n or \r (progress bars). A line longer than `longest` is cut with a mark.
class LineSplitter {
 public:
  static constexpr size_t kLongest = 64 << 10;
  static constexpr std::string_view kCutMark = " [line continues]\n";

  explicit LineSplitter(size_t longest = kLongest) : longest_(longest) {}

  // Calls lines(std::string_view) with one or more whole lines at a time, in order. The views
  // are valid during the call only.
  template <class Lines>
  void feed(std::string_view bytes, Lines lines) {
    if (pending_.empty()) {
      const size_t whole = end_of_lines(bytes);
      if (whole > 0) lines(bytes.substr(0, whole));
      pending_.assign(bytes.substr(whole));
    } else {
      pending_.append(bytes);
      const size_t whole = end_of_lines(pending_);
      if (whole > 0) lines(std::string_view(pending_).substr(0, whole));
      pending_.erase(0, whole);
    }
    while (pending_.size() >= longest_) cut(lines);
  }

  // Passes on the unfinished line, if any, followed by `end`.
  template <class Lines>
  void finish(std::string_view end, Lines lines) {
    if (pending_.empty()) return;
    pending_.append(end);
    lines(std::string_view(pending_));
    pending_.clear();
  }

  bool has_partial() const { return !pending_.empty(); }
  void release_memory() { pending_.shrink_to_fit(); }

 private:
  // The position after the last line end. A \r at the very end may be half of \r\n and is kept
  // back.
  static size_t end_of_lines(std::string_view text) {
    const size_t newline = text.rfind('\n');
    const size_t whole = newline == std::string_view::npos ? 0 : newline + 1;
    if (text.size() < 2) return whole;
    const size_t bar = text.rfind('\r', text.size() - 2);
    return bar == std::string_view::npos ? whole : std::max(whole, bar + 1);
  }

  template <class Lines>
  void cut(Lines& lines) {
    std::string piece = pending_.substr(0, longest_);
    pending_.erase(0, longest_);
    piece.append(kCutMark);
    lines(std::string_view(piece));
  }

  size_t longest_;
  std::string pending_;
};

// Puts `prefix` before every line of `lines`, which must be whole lines.
inline std::string with_prefix(std::string_view prefix, std::string_view lines) {
  std::string out;
  out.reserve(lines.size() + prefix.size());
  while (!lines.empty()) {
    size_t end = lines.find_first_of("\r\n");
    end = end == std::string_view::npos ? lines.size() : end + 1;
    if (end < lines.size() && lines[end - 1] == '\r' && lines[end] == '\n') ++end;
    out.append(prefix).append(lines.substr(0, end));
    lines.remove_prefix(end);
  }
  return out;
}

}  // namespace mgpu::launcher
