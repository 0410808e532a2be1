#include "runtime/rewards/embeddings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::rewards {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestHeader = 1 << 20;

// The text after "'key':" in the header of an .npy file, a Python dictionary.
std::string_view after_key(std::string_view header, std::string_view key) {
  const auto at = header.find(fmt::format("'{}':", key));
  if (at == header.npos) return {};
  header.remove_prefix(at + key.size() + 3);
  return header.substr(std::min(header.find_first_not_of(' '), header.size()));
}

// The number at the beginning of `text`, which loses it and a comma.
std::optional<std::size_t> take_number(std::string_view& text) {
  std::size_t number = 0, digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    if (number > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    number = number * 10 + static_cast<std::size_t>(text[digits++] - '0');
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of(", ", digits), text.size()));
  return number;
}

// Numbers of a file, as 4-byte floats.
template <class Float>
std::vector<float> floats_of(std::istream& file, std::size_t count) {
  constexpr std::size_t kAtOnce = 1 << 16;
  std::vector<float> values(count);
  std::vector<Float> some(std::min(count, kAtOnce));
  for (std::size_t i = 0; i < count; i += some.size()) {
    some.resize(std::min(count - i, kAtOnce));
    file.read(reinterpret_cast<char*>(some.data()),
              static_cast<std::streamsize>(some.size() * sizeof(Float)));
    for (std::size_t k = 0; k < some.size(); ++k) values[i + k] = static_cast<float>(some[k]);
  }
  return values;
}

// The next bytes of a file, fewer at its end.
std::string take_bytes(std::istream& file, std::size_t count) {
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

}  // namespace

Embeddings Embeddings::read(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw std::runtime_error(fmt::format("cannot read {}: it is not a file", path));
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw std::runtime_error(fmt::format("cannot read {}: {}", path, error.message()));
  return take(file, size, path);
}

Embeddings Embeddings::parse(const std::string& bytes, const std::string& name) {
  std::istringstream file(bytes);
  return take(file, bytes.size(), name);
}

Embeddings Embeddings::take(std::istream& file, std::uintmax_t size, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(fmt::format("{}: {}", name, what));
  };
  auto start = take_bytes(file, 10);
  if (start.starts_with(kMagic) && start.size() == 10 && start[6] != 1)
    start += take_bytes(file, 2);
  const bool first_version = start.size() > 6 && start[6] == 1;
  if (!start.starts_with(kMagic) || start.size() != (first_version ? 10 : 12))
    refuse(
        "not a NumPy file; a pickle can run code and is not read: convert it with numpy.save of "
        "numpy.array(pickle.load(FILE))");
  std::size_t length = 0;
  for (std::size_t i = start.size(); i-- > 8;)
    length = length * 256 + static_cast<unsigned char>(start[i]);
  if (length > size - start.size()) refuse("the file is truncated");
  if (length > kLongestHeader) refuse("the header is too long");
  const auto text = take_bytes(file, length);
  const std::string_view header = text;

  const auto type = after_key(header, "descr");
  const bool is_float = type.starts_with("'<f4'"), is_double = type.starts_with("'<f8'");
  if (!is_float && !is_double)
    refuse(fmt::format("need numbers of type <f4 or <f8, not {}",
                       rendezvous::shown(type.substr(0, type.find(',')))));
  auto shape = after_key(header, "shape");
  shape.remove_prefix(shape.starts_with('(') ? 1 : 0);
  const auto rows = take_number(shape), columns = take_number(shape);
  if (!after_key(header, "fortran_order").starts_with("False") || !rows || !columns ||
      !shape.starts_with(')'))
    refuse("need a matrix with one row per item, stored row after row");
  const std::uintmax_t bytes = size - start.size() - length, of_number = is_float ? 4 : 8;
  if (*columns == 0 || bytes / of_number / *columns != *rows ||
      bytes != *rows * *columns * of_number)
    refuse(fmt::format("{} x {} numbers need another size of the file", *rows, *columns));
  Embeddings embeddings;
  embeddings.rows_ = *rows;
  embeddings.columns_ = *columns;
  const auto count = *rows * *columns;
  embeddings.values_ = is_float ? floats_of<float>(file, count) : floats_of<double>(file, count);
  if (!file) refuse("the file is truncated");
  for (const auto value : embeddings.values_)
    if (!std::isfinite(value)) refuse("a number is not finite as a 4-byte float");
  return embeddings;
}

double Embeddings::cosine(std::size_t one, std::size_t other) const {
  double product = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < columns_; ++i) {
    const double x = values_[one * columns_ + i], y = values_[other * columns_ + i];
    product += x * y;
    first += x * x;
    second += y * y;
  }
  return first > 0 && second > 0 ? product / std::sqrt(first * second) : 0;
}

}  // namespace mgpu::rewards
