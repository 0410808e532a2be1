#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace mgpu::telemetry {

// Where a person reads: a terminal, whose last line is drawn again and again, or a file or pipe,
// which gets plain lines. A screen that cannot be written to is left alone. Never throws.
class Screen {
 public:
  struct Options {
    int fd = 1;
    bool terminal = false;
    std::size_t width = 0;  // columns; 0: as the terminal says
    bool colour = false;
  };

  explicit Screen(const Options& options) : options_(options) {}
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() { leave_line(); }

  // Calls line(width, colour) and shows what it gives until the next one comes.
  void draw(const std::function<std::string(std::size_t width, bool colour)>& line);
  // Lines that stay, above the one that is drawn.
  void print(const std::string& text);
  // What is drawn stays too.
  void leave_line();

 private:
  void write(const std::string& text);

  Options options_;
  std::string drawn_;
  bool lost_ = false;
};

// Whether this descriptor should be drawn on: it is a terminal that knows how.
bool is_terminal(int fd);
// Whether colours are wanted there: NO_COLOR (https://no-color.org) is not set.
bool wants_colour(int fd);

}  // namespace mgpu::telemetry
