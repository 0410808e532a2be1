#pragma once

#include <filesystem>

namespace mgpu::rendezvous {

// Whether there is a file of any type, or a folder, at a path; links are followed. Only what is
// certainly missing is: the error of a failing disk or server is thrown, as a std::system_error.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_regular_file(const std::filesystem::path& path);
// A link is there even if it leads nowhere.
bool is_listed(const std::filesystem::path& path);

}  // namespace mgpu::rendezvous
