#include "launcher/hang_evidence/process_memory.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kMostSymbolBytes = 8 << 20;

// Where the kernel has mapped the beginning of a file.
struct MappedFile {
  std::string path;
  Address begin = 0;
};

// The files that the process has mapped from their beginning, in the order of the addresses.
std::vector<MappedFile> mapped_files(pid_t pid) {
  const auto text = rendezvous::read_small_file(fmt::format("/proc/{}/maps", pid), 16 << 20).text;
  std::vector<MappedFile> files;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const auto path = line.find('/');
    if (path == line.npos || line.find(" 00000000 ") == line.npos) continue;
    MappedFile file{.path = std::string(line.substr(path))};
    std::from_chars(line.data(), line.data() + line.size(), file.begin, 16);
    if (files.empty() || files.back().path != file.path) files.push_back(std::move(file));
  }
  return files;
}

// Tables of an ELF file; one that is not complete is empty.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    const auto heads = table<Elf64_Ehdr>(0, 1);
    constexpr unsigned char kOurs[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB};
    if (heads.empty() || std::memcmp(heads[0].e_ident, kOurs, sizeof kOurs) != 0) return;
    head_ = heads[0];
    sections_ = table<Elf64_Shdr>(head_.e_shoff, head_.e_shnum);
    segments_ = table<Elf64_Phdr>(head_.e_phoff, head_.e_phnum);
  }

  // Relative to the address at which the file is loaded, or absolute for a program that is not
  // relocated.
  std::optional<Address> symbol(std::string_view name) const {
    for (const auto& section : sections_) {
      if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections_.size()) continue;
      const auto& texts = sections_[section.sh_link];
      const auto names = table<char>(texts.sh_offset, texts.sh_size);
      const auto symbols = table<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
      for (const auto& symbol : symbols)
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_name < names.size() &&
            std::string_view(
                names.data() + symbol.st_name,
                ::strnlen(names.data() + symbol.st_name, names.size() - symbol.st_name)) == name)
          return symbol.st_value;
    }
    return std::nullopt;
  }

  // What to add to a symbol if the beginning of the file is mapped at `begin`.
  Address displacement(Address begin) const {
    if (head_.e_type != ET_DYN) return 0;
    for (const auto& segment : segments_)
      if (segment.p_type == PT_LOAD) return begin - (segment.p_vaddr - segment.p_offset);
    return begin;
  }

 private:
  template <class Entry>
  std::vector<Entry> table(std::uint64_t offset, std::uint64_t count) const {
    if (!fd_ || count > kMostSymbolBytes / sizeof(Entry) || offset > INT64_MAX / 2) return {};
    std::vector<Entry> entries(count);
    const auto size = static_cast<ssize_t>(count * sizeof(Entry));
    const auto got = ::pread(fd_.get(), entries.data(), static_cast<std::size_t>(size),
                             static_cast<off_t>(offset));
    return got == size ? entries : std::vector<Entry>{};
  }

  rendezvous::UniqueFd fd_;
  Elf64_Ehdr head_{};
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Phdr> segments_;
};

std::string program_path(pid_t pid) {
  char path[4096] = {};
  const auto link = fmt::format("/proc/{}/exe", pid);
  return ::readlink(link.c_str(), path, sizeof path - 1) > 0 ? path : "";
}

}  // namespace

void ProcessMemory::read(Address from, void* to, std::size_t size) const {
  iovec ours{to, size};
  iovec theirs{reinterpret_cast<void*>(from), size};
  const auto got = ::process_vm_readv(pid_, &ours, 1, &theirs, 1, 0);
  if (got == static_cast<ssize_t>(size)) return;
  throw std::runtime_error(fmt::format("cannot read the memory of process {}: {}", pid_,
                                       rendezvous::error_text(got < 0 ? errno : EFAULT)));
}

std::string ProcessMemory::bytes(Address from, std::size_t size) const {
  std::string all(size, '\0');
  if (size > 0) read(from, all.data(), size);
  return all;
}

std::vector<Address> find_symbols(pid_t pid, const std::string& library,
                                  const std::vector<std::string>& names) {
  const auto program = program_path(pid);
  for (const auto& mapped : mapped_files(pid)) {
    const auto name = std::string_view(mapped.path).substr(mapped.path.rfind('/') + 1);
    if (mapped.path != program && !name.starts_with(library)) continue;
    const ElfFile file(mapped.path == program ? fmt::format("/proc/{}/exe", pid)
                                              : fmt::format("/proc/{}/root{}", pid, mapped.path));
    std::vector<Address> found;
    for (const auto& symbol : names)
      if (const auto value = file.symbol(symbol))
        found.push_back(*value + file.displacement(mapped.begin));
    if (found.size() == names.size()) return found;
  }
  return {};
}

}  // namespace mgpu::launcher
