#include "rendezvous/base/file_presence.hpp"

#include "rendezvous/base/errors.hpp"

namespace mgpu::rendezvous {
namespace {

namespace fs = std::filesystem;

fs::file_type checked(const fs::path& path, fs::file_status status, const std::error_code& error) {
  if (!fs::status_known(status)) throw_errno("cannot look for " + path.string(), error.value());
  return status.type();
}

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  return checked(path, status, error);
}

}  // namespace

bool is_there(const fs::path& path) {
  return type_of(path) != fs::file_type::not_found;
}

bool is_folder(const fs::path& path) {
  return type_of(path) == fs::file_type::directory;
}

bool is_regular_file(const fs::path& path) {
  return type_of(path) == fs::file_type::regular;
}

bool is_listed(const fs::path& path) {
  std::error_code error;
  const auto status = fs::symlink_status(path, error);
  return checked(path, status, error) != fs::file_type::not_found;
}

}  // namespace mgpu::rendezvous
