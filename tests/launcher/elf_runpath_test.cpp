#include "launcher/doctor/elf_runpath.hpp"

#include <elf.h>

#include <cstring>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using mgpu::tests::TempDir;

namespace {

struct Program {
  Elf64_Ehdr head{};
  Elf64_Phdr load{}, dynamic{};
  Elf64_Dyn entries[4]{};
  char strings[64]{};
};

// All that is needed to find the strings; it cannot be run.
Program program_with(Elf64_Sxword tag, const char* text) {
  constexpr std::uint64_t kBase = 0x400000;
  Program program;
  std::memcpy(program.head.e_ident, ELFMAG, SELFMAG);
  program.head.e_ident[EI_CLASS] = ELFCLASS64;
  program.head.e_ident[EI_DATA] = ELFDATA2LSB;
  program.head.e_phoff = offsetof(Program, load);
  program.head.e_phentsize = sizeof(Elf64_Phdr);
  program.head.e_phnum = 2;
  program.load.p_type = PT_LOAD;
  program.load.p_vaddr = kBase;
  program.load.p_filesz = sizeof program;
  program.dynamic.p_type = PT_DYNAMIC;
  program.dynamic.p_offset = offsetof(Program, entries);
  program.dynamic.p_filesz = sizeof program.entries;
  program.entries[0].d_tag = DT_STRTAB;
  program.entries[0].d_un.d_ptr = kBase + offsetof(Program, strings);
  program.entries[1].d_tag = DT_STRSZ;
  program.entries[1].d_un.d_val = sizeof program.strings;
  program.entries[2].d_tag = tag;
  program.entries[2].d_un.d_val = 1;
  std::strncpy(program.strings + 1, text, sizeof program.strings - 2);
  return program;
}

std::vector<std::string> runpath_in(const TempDir& dir, const Program& program,
                                    std::size_t size = sizeof(Program)) {
  const auto path = dir.path("program");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&program), static_cast<std::streamsize>(size));
  return runpath_of(path);
}

using Folders = std::vector<std::string>;

}  // namespace

TEST_CASE("the library folders of a program are read from its ELF file", "[elf]") {
  TempDir dir(TempDir::in_memory());
  const auto here = dir.root().string();
  CHECK(runpath_in(dir, program_with(DT_RUNPATH, "/a/lib:/b")) == Folders{"/a/lib", "/b"});
  CHECK(runpath_in(dir, program_with(DT_RPATH, "/a::")) == Folders{"/a"});
  CHECK(runpath_in(dir, program_with(DT_RUNPATH, "$ORIGIN/../lib:${ORIGIN}")) ==
        Folders{here + "/../lib", here});
  CHECK(runpath_in(dir, program_with(DT_NEEDED, "libc.so.6")).empty());
}

TEST_CASE("a file that is no ELF program or is broken has no folders", "[elf]") {
  TempDir dir(TempDir::in_memory());
  CHECK(runpath_of(dir.path("absent")).empty());
  const auto good = program_with(DT_RUNPATH, "/a");
  for (const std::size_t size : {0, 3, 40, 64, 120, 200, 240, 280})
    CHECK(runpath_in(dir, good, size).empty());
  auto bad = good;
  bad.head.e_ident[EI_CLASS] = ELFCLASS32;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  bad.entries[2].d_un.d_val = ~0ull;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  bad.entries[1].d_un.d_val = ~0ull;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  bad.entries[0].d_un.d_ptr = ~0ull;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  bad.load.p_offset = ~0ull - 10;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  bad.dynamic.p_filesz = ~0ull;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  bad.head.e_phoff = ~0ull;
  CHECK(runpath_in(dir, bad).empty());
  bad = good;
  std::memset(bad.strings, 'x', sizeof bad.strings);  // no end
  CHECK(runpath_in(dir, bad).size() <= 1);
}
