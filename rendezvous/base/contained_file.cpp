#include "rendezvous/base/contained_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownPath = 400;

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// Whether links of a snapshot in the Hub's cache may lead there: to the blobs of the same
// repository, or to those that repositories of this cache share.
bool is_blob_of(const fs::path& folder, const fs::path& target) {
  const fs::path snapshots = folder.parent_path();
  if (snapshots.filename() != "snapshots") return false;
  const fs::path repository = snapshots.parent_path();
  return is_inside(target, repository / "blobs") ||
         is_inside(target, repository.parent_path() / "blobs");
}

}  // namespace

std::string read_contained_file(const std::string& folder, const std::string& name,
                                std::size_t limit) {
  const fs::path path = fs::path(folder) / name;
  const auto text_of = [&](const std::string& why) {
    return fmt::format("cannot read {}: {}", shown(path.string(), kShownPath), why);
  };
  const auto fail = [&](int number) {
    return std::system_error(number, std::generic_category(),
                             "cannot read " + shown(path.string(), kShownPath));
  };
  const auto refuse = [&](const std::string& why) -> InputError {
    return InputError(text_of(why));
  };
  std::error_code error;
  const fs::path home = fs::canonical(folder, error);
  const fs::path target = error ? fs::path() : fs::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    throw refuse(error.message());
  if (error) throw fail(error.value());
  if (!is_inside(target, home) && !is_blob_of(home, target))
    throw refuse(fmt::format("it is a link to {}, outside the folder; replace it with a copy",
                             shown(target.string(), kShownPath)));
  // Non-blocking: opening a pipe would wait for its writer.
  const UniqueFd fd(
      ::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0) throw fail(errno);
  if (!S_ISREG(st.st_mode)) throw refuse("it is not a regular file");
  auto file = read_small_file(fd.get(), limit);
  if (file.state == SmallFile::State::too_large)
    throw refuse(fmt::format("it has more than {} bytes", limit));
  if (!file.complete()) throw fail(file.error);
  return std::move(file.text);
}

}  // namespace mgpu::rendezvous
