#include "launcher/doctor/elf_runpath.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kMostTableBytes = 1 << 20;  // of a table; a program's has a few KiB

// Reads a file in pieces; a piece that is not complete counts as missing.
class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  std::optional<std::string> bytes(std::uint64_t offset, std::uint64_t size) const {
    if (!fd_ || size > kMostTableBytes || offset > INT64_MAX - kMostTableBytes) return std::nullopt;
    std::string all(size, '\0');
    const ssize_t n = ::pread(fd_.get(), all.data(), size, static_cast<off_t>(offset));
    return n == static_cast<ssize_t>(size) ? std::optional(std::move(all)) : std::nullopt;
  }

  template <class Entry>
  std::vector<Entry> table(std::uint64_t offset, std::uint64_t count) const {
    if (count > kMostTableBytes / sizeof(Entry)) return {};
    const auto found = bytes(offset, count * sizeof(Entry));
    std::vector<Entry> entries(found ? count : 0);
    if (found && count) std::memcpy(entries.data(), found->data(), found->size());
    return entries;
  }

 private:
  rendezvous::UniqueFd fd_;
};

// The file offset of a virtual address.
std::optional<std::uint64_t> offset_of(std::uint64_t address,
                                       const std::vector<Elf64_Phdr>& segments) {
  for (const auto& segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return std::nullopt;
}

std::string runpath_text(const File& file) {
  const auto heads = file.table<Elf64_Ehdr>(0, 1);
  constexpr unsigned char kOurs[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB};
  if (heads.empty() || std::memcmp(heads[0].e_ident, kOurs, sizeof kOurs) != 0) return {};
  if (heads[0].e_phentsize != sizeof(Elf64_Phdr)) return {};
  const auto segments = file.table<Elf64_Phdr>(heads[0].e_phoff, heads[0].e_phnum);
  std::uint64_t strings = 0, size = 0;
  std::optional<std::uint64_t> runpath, rpath;
  for (const auto& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (const auto& entry :
         file.table<Elf64_Dyn>(segment.p_offset, segment.p_filesz / sizeof(Elf64_Dyn))) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRSZ) size = entry.d_un.d_val;
      if (entry.d_tag == DT_RUNPATH) runpath = entry.d_un.d_val;
      if (entry.d_tag == DT_RPATH) rpath = entry.d_un.d_val;
    }
  }
  const auto at = runpath ? runpath : rpath;
  const auto offset = offset_of(strings, segments);
  const auto table = at && offset ? file.bytes(*offset, size) : std::nullopt;
  if (!table || *at >= table->size()) return {};
  return table->substr(*at, table->find('\0', *at) - *at);
}

}  // namespace

std::vector<std::string> runpath_of(const std::string& program) {
  const auto text = runpath_text(File(program));
  const auto origin = program.substr(0, std::max<std::size_t>(program.rfind('/') + 1, 1) - 1);
  std::vector<std::string> folders;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(':', begin), text.size());
    auto folder = text.substr(begin, end - begin);
    for (const std::string_view word : {"${ORIGIN}", "$ORIGIN"})
      if (const auto found = folder.find(word); found != folder.npos)
        folder.replace(found, word.size(), origin.empty() ? "." : origin);
    if (!folder.empty()) folders.push_back(std::move(folder));
    begin = end + 1;
  }
  return folders;
}

}  // namespace mgpu::launcher
