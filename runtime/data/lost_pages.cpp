#include "runtime/data/lost_pages.hpp"

#include <signal.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace mgpu::data {
namespace {

void (*report)(const char* message) = nullptr;

// A place in a mapped file.
struct MappedPlace {
  std::string path;
  std::uint64_t inode = 0, position = 0;
};

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const auto word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

std::uint64_t number_in(std::string_view word, int base) {
  std::uint64_t number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number, base);
  return number;
}

// A line of /proc/self/maps: BEGIN-END RIGHTS OFFSET DEVICE INODE PATH.
std::optional<MappedPlace> place_in(std::string_view line, std::uint64_t address) {
  constexpr std::string_view kDeleted = " (deleted)";
  const auto range = take_word(line);
  const auto dash = std::min(range.find('-'), range.size() - 1);
  const auto begin = number_in(range.substr(0, dash), 16);
  if (address < begin || address >= number_in(range.substr(dash + 1), 16)) return std::nullopt;
  take_word(line);
  const auto offset = number_in(take_word(line), 16);
  take_word(line);
  const auto inode = number_in(take_word(line), 10);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.ends_with(kDeleted)) line.remove_suffix(kDeleted.size());
  return MappedPlace{std::string(line), inode, offset + (address - begin)};
}

std::optional<MappedPlace> file_mapped_at(std::uint64_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    auto place = place_in(line, address);
    if (!place) continue;
    const std::string_view path = place->path;
    // Memory, not files: shared memory and what a driver maps.
    if (!path.starts_with('/') || path.starts_with("/dev/") || path.starts_with("/memfd:"))
      return std::nullopt;
    return place;
  }
  return std::nullopt;
}

bool is_long_enough(const MappedPlace& place) {
  struct stat now{};
  return ::stat(place.path.c_str(), &now) == 0 && now.st_ino == place.inode &&
         static_cast<std::uint64_t>(now.st_size) > place.position;
}

// The signal interrupts the access itself, which is in none of the functions that are called here,
// so they need not be async-signal-safe.
void on_bus_error(int signo, siginfo_t* info, void* /*context*/) {
  ::signal(signo, SIG_DFL);  // the access is repeated after return, and then ends the process
  if (info->si_code != BUS_ADRERR) return;
  const auto place = file_mapped_at(reinterpret_cast<std::uint64_t>(info->si_addr));
  if (!place) return;
  const auto why = is_long_enough(*place)
                       ? "the disk reported an error"
                       : "another program made it shorter while it was read; start again when the "
                         "file is complete";
  report(fmt::format("cannot read {}: {}", place->path, why).c_str());
}

}  // namespace

void report_lost_pages(void (*fail)(const char* message)) {
  report = fail;
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace mgpu::data
