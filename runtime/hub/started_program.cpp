#include "runtime/hub/started_program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/processes/spawn.hpp"

namespace mgpu::hub {

using rendezvous::UniqueFd;

StartedProgram start_program(const Program& program) {
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot make a pipe");
  UniqueFd from(pipe[0]);
  const UniqueFd to(pipe[1]);
  rendezvous::ChildSetup setup{.argv = program.argv,
                               .envp = program.environment,
                               .workdir = {},
                               .stdin_fd = nothing.get(),
                               .stdout_fd = to.get(),
                               .stderr_fd = to.get(),
                               .leads = rendezvous::ChildSetup::Leads::group,
                               .only_stdio = true};
  ::sigemptyset(&setup.blocked);
  ::sigemptyset(&setup.stay_ignored);
  return {rendezvous::ChildProcess(rendezvous::spawn_and_confirm(setup)), std::move(from)};
}

}  // namespace mgpu::hub
