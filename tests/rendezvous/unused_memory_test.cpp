#include "rendezvous/base/unused_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

extern "C" const char __executable_start, etext;  // of the linker

using namespace mgpu::rendezvous;

namespace {

constexpr std::size_t kPage = 4096;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // its own malloc keeps memory, and its code is used at once
#else
constexpr bool kSanitized = false;
#endif

// A page of constants, which no other code uses.
alignas(kPage) const volatile char kConstants[kPage] = "unchanged";

// Resident KiB of the mappings that begin from `begin` on and before `end`.
long resident(const void* begin, const void* end) {
  std::ifstream maps("/proc/self/smaps");
  long sum = 0;
  bool counted = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t at = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> at >> dash && dash == '-')
      counted = at >= reinterpret_cast<std::uintptr_t>(begin) &&
                at < reinterpret_cast<std::uintptr_t>(end);
    else if (counted && line.starts_with("Rss:"))
      sum += std::atol(line.c_str() + 4);
  }
  return sum;
}

long resident_code() {
  return resident(&__executable_start, &etext);
}

void touch_code() {
  for (const volatile char* at = &__executable_start; at < &etext; at += kPage)
    static_cast<void>(*at);
}

}  // namespace

TEST_CASE("code that is not used any more is not resident", "[unused_memory]") {
  const CodePages pages;
  touch_code();
  const long before = resident_code();
  pages.unmap();
  CHECK(resident_code() < (kSanitized ? before : before * 3 / 4));
  touch_code();
  CHECK(resident_code() > before * 9 / 10);
}

TEST_CASE("a page of constants that was changed stays as it is", "[unused_memory]") {
  char* const page = const_cast<char*>(kConstants);
  REQUIRE(::mprotect(page, kPage, PROT_READ | PROT_WRITE) == 0);
  page[0] = 'U';
  REQUIRE(::mprotect(page, kPage, PROT_READ) == 0);
  CodePages().unmap();
  CHECK(std::string(page) == "Unchanged");
}

TEST_CASE("freed memory is given back to the kernel", "[unused_memory]") {
  if (kSanitized) return;
  const auto anonymous = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:")) return std::atol(line.c_str() + 8);
    return 0L;
  };
  const long before = anonymous();
  std::vector<std::string> blocks;
  for (int i = 0; i < 2000; ++i) blocks.emplace_back(16 << 10, 'x');
  const std::string last(100, 'x');  // above them in the heap
  CHECK(anonymous() > before + (20 << 10));
  blocks.clear();
  release_freed_memory();
  CHECK(anonymous() < before + (2 << 10));
}
