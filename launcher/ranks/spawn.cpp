#include "launcher/ranks/spawn.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace mgpu::launcher {
namespace {

struct ProcessSettings {
  const Inherited& inherited;
  const BindingMask& binding;
  int cgroup_procs;
};

// Runs in the child: async-signal-safe calls only.
int apply_settings(const void* argument) {
  const auto& settings = *static_cast<const ProcessSettings*>(argument);
  ::setrlimit(RLIMIT_NOFILE, &settings.inherited.nofile);
  // A process that cannot be moved runs in our own cgroup.
  if (settings.cgroup_procs >= 0 && ::write(settings.cgroup_procs, "0", 1) != 1) errno = 0;
  // Where Yama lets only ancestors of a process look into it: a debugger that we start when the
  // job hangs may, too.
  ::prctl(PR_SET_PTRACER, ::getppid());
  return settings.binding.apply();
}

}  // namespace

Spawned spawn(ChildSetup setup, const Inherited& inherited, const BindingMask& binding,
              int cgroup_procs) {
  const ProcessSettings settings{inherited, binding, cgroup_procs};
  setup.blocked = inherited.mask;
  sigfillset(&setup.stay_ignored);
  if (!inherited.sigpipe_ignored) sigdelset(&setup.stay_ignored, SIGPIPE);
  setup.last_step = {&apply_settings, &settings};
  return rendezvous::spawn(setup);
}

}  // namespace mgpu::launcher
