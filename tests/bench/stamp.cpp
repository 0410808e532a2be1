// A rank for launcher_bench.py: writes when it starts and ends, by CLOCK_MONOTONIC.
//
//   stamp FILE DYING
//
// First appends "start <attempt> <rank> <ns>" to FILE. In attempt 0 rank DYING waits
// for all others to start and to be quiet, appends "death ...", and exits with 1; the others stay
// until a signal ends them. In later attempts every rank stays a moment and exits with 0.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr long kMillisecond = 1'000'000;

long long now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000LL * kMillisecond + time.tv_nsec;
}

void nap(long milliseconds) {
  const timespec time{milliseconds / 1000, milliseconds % 1000 * kMillisecond};
  ::nanosleep(&time, nullptr);
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void note(int file, const char* what, long long when) {
  char line[128];
  const int size = std::snprintf(line, sizeof line, "%s %s %s %lld\n", what,
                                 variable("TORCHELASTIC_RESTART_COUNT"), variable("RANK"), when);
  if (::write(file, line, static_cast<std::size_t>(size)) != size) std::_Exit(3);
}

int lines_in(int file) {
  char text[16384];
  const auto size = ::pread(file, text, sizeof text, 0);
  int lines = 0;
  for (ssize_t i = 0; i < size; ++i) lines += text[i] == '\n';
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  const long long started = now();
  if (argc != 3) return 2;
  const int file = ::open(argv[1], O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return 3;
  note(file, "start", started);
  if (std::strcmp(variable("TORCHELASTIC_RESTART_COUNT"), "0") != 0) {
    nap(200);
    return 0;
  }
  if (std::strcmp(variable("RANK"), argv[2]) != 0)
    for (;;) ::pause();
  const int ranks = std::atoi(variable("WORLD_SIZE"));
  while (lines_in(file) < ranks) nap(2);
  nap(100);
  note(file, "death", now());
  std::_Exit(1);
}
