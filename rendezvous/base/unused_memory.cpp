#include "rendezvous/base/unused_memory.hpp"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous {
namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Of a page's entry in /proc/self/pagemap.
constexpr std::uint64_t kPresent = 1ull << 63, kOfFile = 1ull << 61;

}  // namespace

void release_freed_memory() {
  ::malloc_trim(0);
}

CodePages::CodePages() {
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* found) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W)) continue;
          const std::uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) / kPage * kPage;
          const std::uintptr_t end = object->dlpi_addr + segment.p_vaddr + segment.p_memsz;
          static_cast<std::vector<Range>*>(found)->push_back(
              {reinterpret_cast<char*>(begin), (end - begin + kPage - 1) / kPage});
        }
        return 0;
      },
      &ranges_);
}

void CodePages::unmap() const noexcept {
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::array<std::uint64_t, 512> entries;
  for (const auto& range : ranges_)
    for (std::size_t at = 0; at < range.pages; at += entries.size()) {
      char* const begin = range.begin + at * kPage;
      const auto wanted = std::min(entries.size(), range.pages - at) * sizeof entries[0];
      const auto got = ::pread(
          pagemap.get(), entries.data(), wanted,
          static_cast<off_t>(reinterpret_cast<std::uintptr_t>(begin) / kPage * sizeof entries[0]));
      if (got != static_cast<ssize_t>(wanted)) return;
      const auto* const last = entries.data() + wanted / sizeof entries[0];
      const auto unchanged = [](std::uint64_t entry) {
        return (entry & kPresent) && (entry & kOfFile);
      };
      for (const auto* page = entries.data(); page != last;) {
        const auto* const run = std::find_if(page, last, unchanged);
        page = std::find_if_not(run, last, unchanged);
        if (run != page)
          ::madvise(begin + static_cast<std::size_t>(run - entries.data()) * kPage,
                    static_cast<std::size_t>(page - run) * kPage, MADV_DONTNEED);
      }
    }
}

}  // namespace mgpu::rendezvous
