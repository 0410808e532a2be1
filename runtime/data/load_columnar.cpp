#include "runtime/data/load_columnar.hpp"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/passing_error.hpp"
#include "rendezvous/base/small_file.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPlugin = "mgpu-columnar.so";
constexpr const char* kFolder = "PYARROW_ROOT";  // of pyarrow, if it is in no place that we search
constexpr const char* kLibraries[] = {"libarrow.so." MGPU_ARROW_ABI,
                                      "libparquet.so." MGPU_ARROW_ABI};
constexpr std::size_t kLongestVersionFile = 1 << 16;

fs::path own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

// The Python that these programs were installed with, if they were: it is beside the front end, and
// above the worker in lib/python3.N/site-packages/mgpu_train.
std::string own_python() {
  const auto own = own_folder();
  const auto prefix = own.parent_path().parent_path().parent_path().parent_path();
  for (const auto& python : {own / "python3", prefix / "bin" / "python3"})
    if (::access(python.c_str(), X_OK) == 0) return python.string();
  return "python3";
}

// The packages of each Python below a prefix such as a virtual environment.
void add_packages(const fs::path& prefix, std::vector<fs::path>& folders) {
  std::error_code ignored;
  for (const auto* lib : {"lib", "lib64"})
    for (const auto& python : fs::directory_iterator(prefix / lib, ignored))
      if (python.path().filename().string().starts_with("python3"))
        for (const auto* packages : {"site-packages", "dist-packages"})
          folders.push_back(python.path() / packages);
}

std::vector<fs::path> package_folders() {
  std::vector<fs::path> folders;
  if (const char* torch = ::getenv("LIBTORCH_ROOT"); torch != nullptr && *torch != '\0')
    folders.push_back(fs::path(torch).parent_path());
  const auto own = own_folder();
  folders.push_back(own.parent_path());  // a worker in site-packages/mgpu_train
  add_packages(own.parent_path(), folders);
  if (const char* environment = ::getenv("VIRTUAL_ENV")) add_packages(environment, folders);
  return folders;
}

std::vector<fs::path> plugin_files() {
  const auto own = own_folder();
  std::vector<fs::path> files{own / kPlugin, own.parent_path() / "libexec/mgpu" / kPlugin};
  for (const auto& packages : package_folders()) files.push_back(packages / "mgpu_train" / kPlugin);
  return files;
}

// What the search cannot reach, such as the folder of another user, is not there.
bool can_be_used(const fs::path& file) {
  try {
    return rendezvous::is_there(file);
  } catch (const std::system_error& e) {
    if (rendezvous::is_passing(e)) throw;
    return false;
  }
}

std::optional<fs::path> first_there(const std::vector<fs::path>& files) {
  const auto found = std::find_if(files.begin(), files.end(), can_be_used);
  if (found == files.end()) return std::nullopt;
  return *found;
}

std::optional<fs::path> pyarrow_folder() {
  if (const char* given = ::getenv(kFolder); given != nullptr && *given != '\0') return given;
  std::vector<fs::path> folders;
  for (const auto& packages : package_folders()) folders.push_back(packages / "pyarrow");
  return first_there(folders);
}

bool has_libraries(const fs::path& pyarrow) {
  return std::ranges::all_of(kLibraries,
                             [&](const char* library) { return can_be_used(pyarrow / library); });
}

std::string version_of(const fs::path& pyarrow) {
  const auto text =
      rendezvous::read_small_file((pyarrow / "_generated_version.py").string(), kLongestVersionFile)
          .text;
  const auto name = text.find("\nversion = ");
  const auto assigned = name == text.npos ? text.rfind("version = ") : name;
  if (assigned == text.npos) return "another version";
  const auto open = text.find_first_of("'\"", assigned);
  const auto close = open == text.npos ? text.npos : text.find(text[open], open + 1);
  return close == text.npos ? "another version" : text.substr(open + 1, close - open - 1);
}

class Plugin {
 public:
  const MgpuColumnarPlugin& get(const std::string& path, std::string_view format) {
    const std::lock_guard lock(mutex_);
    if (plugin_ == nullptr) load(fmt::format("{} is in the format {}", path, format));
    return *plugin_;
  }

 private:
  void load(const std::string& beginning) {
    const auto file = first_there(plugin_files());
    if (!file)
      throw rendezvous::InputError(
          fmt::format("{}, but this build of mgpu-train has no plug-in for it: {} is missing; run "
                      "scripts/setup.sh --torch and build again, or install mgpu-train again",
                      beginning, kPlugin));
    const auto pyarrow = pyarrow_folder();
    // The libraries that the plug-in needs are found by their names once they are loaded.
    std::string why;  // the first of them cannot be loaded
    if (pyarrow)
      for (const auto* library : kLibraries)
        if (::dlopen((*pyarrow / library).c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr && why.empty())
          why = ::dlerror();
    void* const handle = ::dlopen(file->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      if (why.empty()) why = ::dlerror();
      const auto needed =
          fmt::format("{}, which is read with pyarrow {}", beginning, MGPU_PYARROW_VERSION);
      if (pyarrow ? has_libraries(*pyarrow) : !why.ends_with(rendezvous::error_text(ENOENT)))
        throw std::runtime_error(fmt::format(
            "{}, but it cannot be loaded: {}; if that stays so, install it again", needed, why));
      const auto found =
          pyarrow ? fmt::format(", but {} has {}", pyarrow->string(), version_of(*pyarrow)) : "";
      const auto more =
          pyarrow ? "" : fmt::format("; if it is there, set {} to its folder", kFolder);
      throw rendezvous::InputError(fmt::format("{}{}; run: {} -m pip install pyarrow=={}{}", needed,
                                               found, own_python(), MGPU_PYARROW_VERSION, more));
    }
    using Get = const MgpuColumnarPlugin* (*)();
    const auto get = reinterpret_cast<Get>(::dlsym(handle, "mgpu_columnar_plugin"));
    if (get == nullptr)
      throw rendezvous::InputError(
          fmt::format("{} is damaged; install mgpu-train again", file->string()));
    plugin_ = get();
  }

  std::mutex mutex_;
  const MgpuColumnarPlugin* plugin_ = nullptr;
};

}  // namespace

const MgpuColumnarPlugin& columnar_plugin(const std::string& path, std::string_view format) {
  static Plugin plugin;
  return plugin.get(path, format);
}

}  // namespace mgpu::data
