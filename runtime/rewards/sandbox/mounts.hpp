#pragma once

#include <cstddef>

// The file system of a sandbox. The functions run in a new process and are async-signal-safe. Each
// returns whether it succeeded; if not, errno says why.
namespace mgpu::rewards {

// Mounts that are made outside from now on do not appear.
bool make_mounts_private();

// Makes everything that is mounted read-only. Kernels before 5.12 need the list of all mounts: it
// is read into `scratch`.
bool make_read_only(char* scratch, std::size_t size);

// An empty file system in memory.
bool mount_empty(const char* path, const char* options);

// /dev with only null, zero, full, random and urandom, and an empty /dev/shm.
bool mount_small_dev(const char* shm_options);
bool seal_dev();

// Opens a file or folder, and shows it at `path` after something else has been mounted above it.
bool open_path(const char* path, int& fd);
bool show_path(int fd, const char* path);

// A read-only /proc of the processes of the sandbox. Where a container hides parts of /proc, the
// kernel does not allow a new one: /proc is then empty.
bool mount_own_proc();

// Empty /sys/kernel and /sys/firmware: they have debugging files that root may read.
bool hide_kernel_files();

}  // namespace mgpu::rewards
