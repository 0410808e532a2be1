#include "runtime/rewards/embeddings.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::rewards {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

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

template <class Float>
std::vector<double> floats_of(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(Float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Float one;
    std::memcpy(&one, bytes.data() + i * sizeof(Float), sizeof(Float));
    values[i] = static_cast<double>(one);
  }
  return values;
}

}  // namespace

Embeddings Embeddings::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return parse({std::istreambuf_iterator<char>(file), {}}, path);
}

Embeddings Embeddings::parse(const std::string& bytes, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(fmt::format("{}: {}", name, what));
  };
  std::string_view rest = bytes;
  if (!rest.starts_with(kMagic) || rest.size() < 12)
    refuse(
        "not a NumPy file; a pickle can run code and is not read: convert it with numpy.save of "
        "numpy.array(pickle.load(FILE))");
  const bool first_version = rest[6] == 1;
  const std::size_t begin = first_version ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = begin; i-- > 8;) length = length * 256 + static_cast<unsigned char>(rest[i]);
  if (length > rest.size() - begin) refuse("the file is truncated");
  const auto header = rest.substr(begin, length);
  rest.remove_prefix(begin + length);

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
  const std::size_t size = is_float ? 4 : 8;
  if (*columns == 0 || rest.size() / size / *columns != *rows ||
      rest.size() != *rows * *columns * size)
    refuse(fmt::format("{} x {} numbers need another size of the file", *rows, *columns));
  Embeddings embeddings;
  embeddings.rows_ = *rows;
  embeddings.columns_ = *columns;
  embeddings.values_ = is_float ? floats_of<float>(rest) : floats_of<double>(rest);
  for (const auto value : embeddings.values_)
    if (!std::isfinite(value)) refuse("a number is not finite");
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
