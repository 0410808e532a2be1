#include "launcher/nodes/etcd_prefix.hpp"

#include <fmt/format.h>
#include <pwd.h>

#include "launcher/options/options.hpp"
#include "rendezvous/etcd/job_view.hpp"

namespace mgpu::launcher {

std::string default_etcd_prefix(uid_t uid) {
  std::string name;
  // Images without a passwd file have a root too.
  if (uid == 0)
    name = "root";
  else if (const passwd* user = ::getpwuid(uid))
    name = user->pw_name;
  if (name.empty())
    throw UsageError(
        fmt::format("the user with uid {} has no name on this node, so the prefix of the job's "
                    "keys in etcd is not known; set the same one on all nodes with --rdzv-conf "
                    "prefix=/mgpu-run/NAME",
                    uid));
  return "/mgpu-run/" + rendezvous::etcd::key_part(name);
}

}  // namespace mgpu::launcher
