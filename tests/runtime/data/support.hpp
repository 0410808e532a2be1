#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/data/order.hpp"
#include "runtime/data/prepare.hpp"
#include "tests/runtime/data/toy_encoder.hpp"
#include "tests/support/temp_dir.hpp"

namespace mgpu::tests {

inline void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string contents(const std::string& path) {
  std::string text(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary)
      .read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

// Lengths like those of real datasets: many short, some long.
inline std::vector<std::uint32_t> some_lengths(std::size_t count, std::uint32_t longest,
                                               unsigned seed = 1) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(5, 0.8);
  std::vector<std::uint32_t> out;
  while (out.size() < count)
    out.push_back(2 + static_cast<std::uint32_t>(length(random)) % (longest - 1));
  return out;
}

inline std::vector<data::Selection> all_of(std::uint32_t count, double weight = 1) {
  data::Selection selection{.weight = weight};
  for (std::uint32_t i = 0; i < count; ++i) selection.examples.push_back(i);
  return {selection};
}

// A dataset of pre-tokenized rows. Row i has lengths[i] tokens, the first of which is i, and labels
// after its first third.
inline data::Dataset dataset_of(const TempDir& dir, const std::vector<std::uint32_t>& lengths,
                                std::int64_t max_length = 0) {
  std::string rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::string ids, labels;
    for (std::uint32_t t = 0; t < lengths[i]; ++t) {
      const std::size_t id = t == 0 ? i : (i * 7 + t * 13) % 1000;
      ids += fmt::format("{}{}", t ? "," : "", id);
      labels += fmt::format("{}{}", t ? "," : "", t < lengths[i] / 3 ? -100 : static_cast<int>(id));
    }
    rows += fmt::format("{{\"input_ids\":[{}],\"labels\":[{}]}}\n", ids, labels);
  }
  write(dir.path("rows.jsonl"), rows);
  return data::prepare({{dir.path("rows.jsonl")}},
                       {.cache = dir.path("cache"), .max_length = max_length}, ToyEncoder())
      .dataset;
}

}  // namespace mgpu::tests
