// Prints the rows of a file as they are read, one JSON object per line: rows FILE
#include <cstdio>
#include <exception>

#include "runtime/data/source_file.hpp"

using namespace mgpu;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    data::SourceFile(argv[1], 1).for_each_row([](std::uint64_t, const data::Rows& row) {
      std::puts(row.parse().dump().c_str());
      return true;
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
