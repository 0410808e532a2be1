#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace mgpu::rewards {

// One vector per row.
class Embeddings {
 public:
  // Reads a matrix of NumPy's format (.npy): 4-byte or 8-byte floats, little-endian, row after row.
  // Numbers are kept as 4-byte floats. Throws std::runtime_error with the file and the reason.
  static Embeddings read(const std::string& path);
  static Embeddings parse(const std::string& bytes, const std::string& name);

  std::size_t rows() const { return rows_; }
  // The cosine of the angle between two rows; 0 if one of them is all zero.
  double cosine(std::size_t one, std::size_t other) const;

 private:
  static Embeddings take(std::istream& file, std::uintmax_t size, const std::string& name);

  std::size_t rows_ = 0, columns_ = 0;
  std::vector<float> values_;
};

}  // namespace mgpu::rewards
