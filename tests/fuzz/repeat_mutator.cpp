// A mutation for all fuzzers: repeats a part of the input many times. Deep nesting, long lists and
// output that grows faster than the input are otherwise rarely found.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t longest);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* bytes, std::size_t size,
                                               std::size_t longest, unsigned int seed) {
  std::minstd_rand random(seed);
  const auto below = [&random](std::size_t limit) { return random() % limit; };
  if (size == 0 || size >= longest || below(16) != 0) return LLVMFuzzerMutate(bytes, size, longest);
  const std::size_t begin = below(size);
  const std::size_t length = 1 + below(std::min<std::size_t>(size - begin, 64));
  const std::size_t times = std::min(std::size_t{1} << below(20), (longest - size) / length);
  const std::string part(reinterpret_cast<const char*>(bytes) + begin, length);
  const std::size_t added = times * length;
  std::copy_backward(bytes + begin, bytes + size, bytes + size + added);
  for (std::size_t i = 0; i < times; ++i)
    std::copy(part.begin(), part.end(), bytes + begin + i * length);
  return size + added;
}
