#pragma once

#include <cstddef>
#include <vector>

namespace mgpu::rendezvous {

// Memory that a process which runs for weeks does not need after a busy moment, given back to the
// kernel. What it needs again comes back by itself.

// What malloc keeps of freed memory.
void release_freed_memory();

// The code and the constants of the program and of the libraries that are loaded when this is made.
class CodePages {
 public:
  CodePages();
  // Unmaps them: only what is used from now on is resident again, from the page cache. Pages that
  // were changed in this process, such as by a debugger's breakpoint, stay. Makes system calls
  // only, so it may be called after fork().
  void unmap() const noexcept;

 private:
  struct Range {
    char* begin;
    std::size_t pages;
  };
  std::vector<Range> ranges_;
};

}  // namespace mgpu::rendezvous
