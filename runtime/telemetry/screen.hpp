#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace mgpu::telemetry {

// The text output for the user: a terminal, whose last line is redrawn, or a file or pipe, which
// gets plain lines. After a failed write, nothing more is written. Never throws.
class Screen {
 public:
  struct Options {
    int fd = 1;
    bool terminal = false;
    std::size_t width = 0;  // columns; 0: the terminal's width
    bool colour = false;
  };

  explicit Screen(const Options& options) : options_(options) {}
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() { finish_line(); }

  // Calls line(width, colour) and shows the result until the next call.
  void draw(const std::function<std::string(std::size_t width, bool colour)>& line);
  // Prints permanent lines above the redrawn line.
  void print(const std::string& text);
  // Makes the redrawn line permanent.
  void finish_line();

 private:
  void write(const std::string& text);

  Options options_;
  std::string drawn_;
  bool failed_ = false;
};

// Whether the descriptor is a terminal that can redraw a line.
bool is_terminal(int fd);
// Whether to use colors: it is such a terminal and NO_COLOR (https://no-color.org) is not set.
bool wants_colour(int fd);

}  // namespace mgpu::telemetry
