#include "launcher/ranks/cgroup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "rendezvous/base/small_file.hpp"

namespace mgpu::launcher {
namespace {

namespace fs = std::filesystem;
using rendezvous::read_kernel_file;
using rendezvous::UniqueFd;

// One line of mountinfo: "36 35 98:0 /root /mount/point opts - type source superopts".
struct Mount {
  std::string root, point, type, super_options;
};

std::optional<Mount> parse_mount(const std::string& line) {
  std::istringstream words(line);
  std::string id, parent, device, options, word;
  Mount mount;
  if (!(words >> id >> parent >> device >> mount.root >> mount.point >> options)) return {};
  while (words >> word && word != "-") {
  }
  std::string source;
  if (!(words >> mount.type >> source >> mount.super_options)) return {};
  return mount;
}

bool has_option(const std::string& options, const std::string& wanted) {
  std::istringstream in(options);
  for (std::string option; std::getline(in, option, ',');)
    if (option == wanted) return true;
  return false;
}

// In a container the mount shows only the part of the tree below `root`.
std::string folder_in(const Mount& mount, const std::string& path) {
  if (mount.root == "/") return path == "/" ? mount.point : mount.point + path;
  if (path == mount.root) return mount.point;
  if (path.starts_with(mount.root + "/")) return mount.point + path.substr(mount.root.size());
  return mount.point;
}

}  // namespace

CgroupPaths find_cgroups(const std::string& self_cgroup, const std::string& mountinfo) {
  std::string v2_path, v1_path;
  std::istringstream own(self_cgroup);
  for (std::string line; std::getline(own, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    if (line.starts_with("0::")) v2_path = line.substr(second + 1);
    if (has_option(controllers, "memory")) v1_path = line.substr(second + 1);
  }
  CgroupPaths paths;
  std::istringstream mounts(mountinfo);
  for (std::string line; std::getline(mounts, line);) {
    const auto mount = parse_mount(line);
    if (!mount) continue;
    if (mount->type == "cgroup2" && !v2_path.empty() && paths.v2.empty())
      paths.v2 = folder_in(*mount, v2_path);
    if (mount->type == "cgroup" && has_option(mount->super_options, "memory") && !v1_path.empty())
      paths.v1_memory = folder_in(*mount, v1_path);
  }
  return paths;
}

CgroupPaths find_own_cgroups() {
  return find_cgroups(read_kernel_file("/proc/self/cgroup").value_or(""),
                      read_kernel_file("/proc/self/mountinfo").value_or(""));
}

std::optional<JobCgroup> JobCgroup::create(const std::string& parent, const std::string& name) {
  if (parent.empty()) return std::nullopt;
  std::string path = parent + "/" + name;
  if (::mkdir(path.c_str(), 0755) != 0) return std::nullopt;
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::access((path + "/cgroup.kill").c_str(), W_OK) != 0) {
    ::rmdir(path.c_str());
    return std::nullopt;
  }
  return JobCgroup(std::move(path), std::move(folder));
}

int JobCgroup::new_attempt() {
  if (!attempt_path_.empty()) remove_cgroup(attempt_path_);
  attempt_path_ = path_ + "/attempt_" + std::to_string(attempts_++);
  ::mkdir(attempt_path_.c_str(), 0755);
  attempt_folder_.reset(::open(attempt_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return attempt_folder_.get();
}

JobCgroup::~JobCgroup() {
  if (!folder_) return;
  if (!empty()) kill();
  remove_cgroup(path_);
}

bool JobCgroup::empty() const {
  const auto events = read_kernel_file(path_ + "/cgroup.events");
  return !events || events->find("populated 1") == std::string::npos;
}

void JobCgroup::kill_cgroup(const std::string& path) {
  UniqueFd fd(::open((path + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  // A cgroup whose folder no longer exists has no processes.
  if (fd && ::write(fd.get(), "1", 1) != 1) return;
}

void JobCgroup::remove_cgroup(const std::string& path) {
  if (::rmdir(path.c_str()) == 0) return;
  std::error_code none;
  std::vector<std::string> inside;
  for (const auto& entry : fs::directory_iterator(path, none))
    if (entry.is_directory(none)) inside.push_back(entry.path());
  for (const auto& folder : inside) remove_cgroup(folder);
  ::rmdir(path.c_str());
}

}  // namespace mgpu::launcher
