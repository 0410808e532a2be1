#include "launcher/doctor/torch_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "launcher/devices/system_tree.hpp"

namespace mgpu::launcher {
namespace {

bool is_there(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string parent(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == path.npos || slash == 0 ? "/" : path.substr(0, slash);
}

// The quoted text in the first line that begins so: cuda: Optional[str] = '13.0'.
std::string quoted_after(const std::string& text, std::string_view beginning) {
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(beginning)) continue;
    const auto open = line.find_first_of("'\"");
    if (open == line.npos) return {};
    const auto close = line.find(line[open], open + 1);
    if (close != line.npos) return std::string(line.substr(open + 1, close - open - 1));
  }
  return {};
}

// The version in the name of a Python package's folder, such as nvidia_nccl_cu13-2.28.9.dist-info.
std::string package_version(const std::vector<std::string>& names, std::string_view package) {
  constexpr std::string_view kEnd = ".dist-info";
  for (const std::string_view name : names) {
    if (!name.starts_with(package) || !name.ends_with(kEnd)) continue;
    const auto dash = name.find('-');
    if (dash != name.npos && dash < name.size() - kEnd.size())
      return std::string(name.substr(dash + 1, name.size() - kEnd.size() - dash - 1));
  }
  return {};
}

// Finds a library by the prefix of its name (libcudart.so, libcudart-1234.so) and returns the
// version after ".so.", or the whole name if there is none.
std::string library_version(const std::vector<std::string>& folders, std::string_view beginning) {
  for (const auto& folder : folders)
    for (const std::string_view name : names_in(folder)) {
      if (!name.starts_with(beginning)) continue;
      const auto so = name.find(".so");
      if (so == name.npos) continue;
      const auto version = name.substr(std::min(so + 4, name.size()));
      return std::string(version.empty() ? name : version);
    }
  return {};
}

// The layout of wheels: nvidia/<package>/lib in the site-packages folder.
std::vector<std::string> package_folders(const std::string& site) {
  std::vector<std::string> folders;
  for (const auto& name : names_in(site + "/nvidia"))
    folders.push_back(fmt::format("{}/nvidia/{}/lib", site, name));
  return folders;
}

}  // namespace

TorchFacts read_torch(const std::vector<std::string>& folders,
                      const std::vector<std::string>& others) {
  const auto found = std::find_if(folders.begin(), folders.end(), [](const auto& folder) {
    return is_there(folder + "/libtorch_cpu.so");
  });
  if (found == folders.end()) return {};
  TorchFacts facts;
  facts.folder = *found;
  const auto root = parent(*found);
  const auto site = parent(root);
  const auto version = read_trimmed(root + "/version.py").value_or("");
  facts.version = quoted_after(version, "__version__");
  // pytorch.org's archive for C++ has its version in a separate file.
  if (facts.version.empty()) facts.version = read_trimmed(root + "/build-version").value_or("");
  facts.cuda = quoted_after(version, "cuda");
  facts.has_cuda_library = is_there(*found + "/libtorch_cuda.so");
  const auto packages = names_in(site);
  auto everywhere = package_folders(site);
  everywhere.push_back(*found);
  everywhere.insert(everywhere.end(), others.begin(), others.end());
  facts.cudart = library_version(everywhere, "libcudart");
  facts.nccl = library_version(everywhere, "libnccl.so");
  if (const auto packaged = package_version(packages, "nvidia_cuda_runtime");
      !facts.cudart.empty() && !packaged.empty())
    facts.cudart = packaged;
  if (const auto packaged = package_version(packages, "nvidia_nccl");
      !facts.nccl.empty() && !packaged.empty())
    facts.nccl = packaged;
  return facts;
}

}  // namespace mgpu::launcher
