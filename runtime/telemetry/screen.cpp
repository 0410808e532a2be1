#include "runtime/telemetry/screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "runtime/telemetry/output_file.hpp"

namespace mgpu::telemetry {
namespace {

constexpr const char* kEraseLine = "\r\033[K";

std::size_t columns_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* variable = std::getenv("COLUMNS");
  const long columns = variable ? std::strtol(variable, nullptr, 10) : 0;
  return columns > 0 && columns < 10000 ? static_cast<std::size_t>(columns) : 80;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

}  // namespace

void Screen::draw(const std::function<std::string(std::size_t, bool)>& line) {
  if (!options_.terminal) return write(line(0, false) + "\n");
  // A terminal wraps a line that fills its last column.
  const std::size_t width = options_.width > 0 ? options_.width : columns_of(options_.fd);
  drawn_ = line(width > 1 ? width - 1 : 1, options_.colour);
  write(kEraseLine + drawn_);
}

void Screen::print(const std::string& text) {
  const auto whole = text.ends_with('\n') ? text : text + "\n";
  write(drawn_.empty() ? whole : kEraseLine + whole + drawn_);
}

void Screen::finish_line() {
  if (drawn_.empty()) return;
  drawn_.clear();
  write("\n");
}

void Screen::write(const std::string& text) {
  if (!failed_) failed_ = !write_all(options_.fd, text);
}

bool is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  return ::isatty(fd) == 1 && kind && std::string_view(kind) != "dumb";
}

bool wants_colour(int fd) {
  return is_terminal(fd) && !is_set("NO_COLOR");
}

}  // namespace mgpu::telemetry
