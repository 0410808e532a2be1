// Replacements for functions that the static archives would otherwise import from a glibc newer
// than 2.34, so that a program linked on a new system starts on an old one. The definitions are
// hidden: nothing outside the program binds to them.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstdarg>
#include <cstdint>
#include <cstdlib>

#define MGPU_SHIM extern "C" __attribute__((visibility("hidden")))

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

// Fills in the object if it covers the address; a result other than 0 ends the search.
int look_into(dl_phdr_info* object, std::size_t, void* data) {
  const auto& search = *static_cast<Search*>(data);
  std::uintptr_t eh_frame_header = 0;
  std::uintptr_t start = 0;
  std::uintptr_t size = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const std::uintptr_t from = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME) eh_frame_header = from;
    if (segment.p_type == PT_LOAD && search.address - from < segment.p_memsz) {
      start = from;
      size = segment.p_memsz;
    }
  }
  if (size == 0) return 0;
  if (eh_frame_header == 0) return -1;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(start);
  search.found->dlfo_map_end = reinterpret_cast<void*>(start + size);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(eh_frame_header);
  return 1;
}

}  // namespace

// GLIBC_2.35, called by libgcc's unwinder for every frame. The unwinder does not fall back to
// dl_iterate_phdr when this fails, so the search is done here; a failure would turn every throw
// into an abort.
MGPU_SHIM int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return ::dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

// GLIBC_2.36, called by std::random_device.
MGPU_SHIM std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) std::abort();
  return value;
}

#if __GLIBC_PREREQ(2, 38)
// GLIBC_2.38, whose headers replace strtol and similar functions; the new ones differ only in that
// they accept "0b". The old ones are called by their names in the library, because in C++ the
// header turns a call of strtol into a call of the functions defined here.
#define MGPU_OLD_NAME(result, name, ...) \
  extern "C" result old_##name(__VA_ARGS__) noexcept __asm__(#name)
MGPU_OLD_NAME(long, strtol, const char*, char**, int);
MGPU_OLD_NAME(unsigned long, strtoul, const char*, char**, int);
MGPU_OLD_NAME(long long, strtoll, const char*, char**, int);
MGPU_OLD_NAME(unsigned long long, strtoull, const char*, char**, int);
MGPU_OLD_NAME(int, vsscanf, const char*, const char*, std::va_list);

MGPU_SHIM long __isoc23_strtol(const char* text, char** end, int base) noexcept {
  return old_strtol(text, end, base);
}
MGPU_SHIM unsigned long __isoc23_strtoul(const char* text, char** end, int base) noexcept {
  return old_strtoul(text, end, base);
}
MGPU_SHIM long long __isoc23_strtoll(const char* text, char** end, int base) noexcept {
  return old_strtoll(text, end, base);
}
MGPU_SHIM unsigned long long __isoc23_strtoull(const char* text, char** end, int base) noexcept {
  return old_strtoull(text, end, base);
}
MGPU_SHIM int __isoc23_sscanf(const char* text, const char* format, ...) noexcept {
  std::va_list values;
  va_start(values, format);
  const int converted = old_vsscanf(text, format, values);
  va_end(values);
  return converted;
}
#endif
