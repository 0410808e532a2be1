#include "runtime/rewards/sandbox/mounts.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace mgpu::rewards {
namespace {

constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV;
constexpr const char* kDevices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                    "/dev/urandom"};
constexpr std::size_t kDeviceCount = sizeof kDevices / sizeof *kDevices;

// The kernel's struct mount_attr: its headers and those of the C library exclude each other.
struct MountAttributes {
  std::uint64_t set, clear, propagation, user_namespace;
};
constexpr std::uint64_t kReadOnly = 0x1, kNoSuid = 0x2, kNoDevices = 0x4;  // MOUNT_ATTR_*
constexpr int kWholeTree = 0x8000;                                         // AT_RECURSIVE

bool set_whole_tree_read_only() {
  MountAttributes attributes{kReadOnly | kNoSuid | kNoDevices, 0, 0, 0};
  return ::syscall(SYS_mount_setattr, AT_FDCWD, "/", kWholeTree, &attributes, sizeof attributes) ==
         0;
}

// Reads a file of /proc and ends it with a zero byte.
bool read_proc_file(const char* path, char* to, std::size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::size_t used = 0;
  ssize_t got = 0;
  while (used + 1 < size &&
         ((got = ::read(fd, to + used, size - used - 1)) > 0 || (got < 0 && errno == EINTR)))
    used += got > 0 ? static_cast<std::size_t>(got) : 0;
  ::close(fd);
  if (got == 0) {
    to[used] = '\0';
    return true;
  }
  if (got > 0) errno = E2BIG;
  return false;
}

// Ends a field at its blank and returns the next one.
char* next_field(char* field) {
  char* blank = std::strchr(field, ' ');
  if (!blank) return field + std::strlen(field);
  *blank = '\0';
  return blank + 1;
}

// mountinfo writes blanks and backslashes as \ooo.
void decode_octal(char* text) {
  char* to = text;
  for (const char* from = text; *from != '\0';) {
    if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
        from[3] >= '0' && from[3] <= '7') {
      *to++ = static_cast<char>((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
      from += 4;
    } else {
      *to++ = *from++;
    }
  }
  *to = '\0';
}

bool has_option(const char* options, const char* name) {
  const auto length = std::strlen(name);
  for (const char* at = options; (at = std::strstr(at, name)) != nullptr; at += length)
    if ((at == options || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return true;
  return false;
}

// A mount keeps its other flags: the kernel does not let a user namespace clear them.
bool remount_read_only(char* line) {
  char* field = line;
  for (int number = 0; number < 4; ++number) field = next_field(field);
  char* const path = field;
  char* const options = next_field(path);
  next_field(options);
  decode_octal(path);
  unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV;
  if (has_option(options, "noexec")) flags |= MS_NOEXEC;
  if (::mount("none", path, nullptr, flags, nullptr) == 0) return true;
  // Below another mount, or in another user's folder. The program cannot reach it either.
  return errno == ENOENT || errno == EACCES || errno == ENOTDIR;
}

bool set_each_mount_read_only(char* scratch, std::size_t size) {
  if (!read_proc_file("/proc/self/mountinfo", scratch, size)) return false;
  for (char* line = scratch; *line != '\0';) {
    char* const end = std::strchr(line, '\n');
    if (end) *end = '\0';
    if (!remount_read_only(line)) return false;
    if (!end) break;
    line = end + 1;
  }
  return true;
}

// "/proc/self/fd/N": snprintf is not async-signal-safe.
void path_of_descriptor(int fd, char (&path)[32]) {
  constexpr char kStart[] = "/proc/self/fd/";
  std::memcpy(path, kStart, sizeof kStart);
  char digits[12];
  int count = 0;
  do digits[count++] = static_cast<char>('0' + fd % 10);
  while ((fd /= 10) > 0);
  char* to = path + sizeof kStart - 1;
  while (count > 0) *to++ = digits[--count];
  *to = '\0';
}

bool bind_descriptor(int fd, const char* path) {
  char from[32];
  path_of_descriptor(fd, from);
  return ::mount(from, path, nullptr, MS_BIND | MS_REC, nullptr) == 0;
}

// A mounted device file has the flags of the file system that it is from.
bool make_device_usable(const char* path) {
  MountAttributes attributes{0, kNoDevices, 0, 0};
  if (::syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes, sizeof attributes) == 0)
    return true;
  struct statvfs now{};
  if (::statvfs(path, &now) != 0) return false;
  unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID;
  if ((now.f_flag & ST_NOEXEC) != 0) flags |= MS_NOEXEC;
  return ::mount("none", path, nullptr, flags, nullptr) == 0;
}

bool make_file(const char* path) {
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) ::close(fd);
  return fd >= 0 || errno == EROFS;  // it exists, in a folder that is shown already
}

// Folders that exist are left as they are; if one cannot be made, the mount on it fails.
void make_folders(const char* path, bool whole) {
  char part[PATH_MAX];
  const auto length = std::strlen(path);
  if (length >= sizeof part) return;
  std::memcpy(part, path, length + 1);
  for (char* at = part + 1; *at != '\0'; ++at) {
    if (*at != '/') continue;
    *at = '\0';
    ::mkdir(part, 0755);
    *at = '/';
  }
  if (whole) ::mkdir(part, 0755);
}

bool mount_sealed(const char* path) {
  return ::mount("tmpfs", path, "tmpfs", kPlain | MS_NOEXEC | MS_RDONLY, "size=4k,mode=555") == 0;
}

}  // namespace

bool make_mounts_private() {
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool make_read_only(char* scratch, std::size_t size) {
  return set_whole_tree_read_only() || set_each_mount_read_only(scratch, size);
}

bool mount_empty(const char* path, const char* options) {
  return ::mount("tmpfs", path, "tmpfs", kPlain, options) == 0;
}

bool mount_small_dev(const char* shm_options) {
  int devices[kDeviceCount];
  for (std::size_t i = 0; i < kDeviceCount; ++i)
    if (!open_path(kDevices[i], devices[i])) {
      if (errno != ENOENT || i == 0) return false;
      devices[i] = -1;
    }
  // Not nodev: that would close the devices too.
  if (::mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=755") != 0)
    return false;
  for (std::size_t i = 0; i < kDeviceCount; ++i) {
    if (devices[i] < 0) continue;
    if (!make_file(kDevices[i]) || !bind_descriptor(devices[i], kDevices[i]) ||
        !make_device_usable(kDevices[i]))
      return false;
    ::close(devices[i]);
  }
  return ::symlink("/proc/self/fd", "/dev/fd") == 0 &&
         ::symlink("/proc/self/fd/0", "/dev/stdin") == 0 &&
         ::symlink("/proc/self/fd/1", "/dev/stdout") == 0 &&
         ::symlink("/proc/self/fd/2", "/dev/stderr") == 0 && ::mkdir("/dev/shm", 01777) == 0 &&
         mount_empty("/dev/shm", shm_options);
}

bool seal_dev() {
  return ::mount("none", "/dev", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC,
                 nullptr) == 0;
}

bool open_path(const char* path, int& fd) {
  fd = ::open(path, O_PATH | O_CLOEXEC);
  return fd >= 0;
}

bool show_path(int fd, const char* path) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return false;
  const bool folder = S_ISDIR(status.st_mode);
  make_folders(path, folder);
  if (!folder && !make_file(path)) return false;
  const bool shown = bind_descriptor(fd, path);
  ::close(fd);
  return shown;
}

bool mount_own_proc() {
  if (::mount("proc", "/proc", "proc", kPlain | MS_NOEXEC | MS_RDONLY, nullptr) == 0) return true;
  return mount_sealed("/proc");
}

bool hide_kernel_files() {
  for (const char* folder : {"/sys/kernel", "/sys/firmware"})
    if (!mount_sealed(folder) && errno != ENOENT) return false;
  return true;
}

}  // namespace mgpu::rewards
