#include "launcher/ssh_launch/forwarded_environment.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::array<std::string_view, 8> kOurs{
    "MGPU_HOSTFILE",        "MGPU_SSH",      "MGPU_SSH_COMMAND", "MGPU_RDZV_TOKEN",
    "MGPU_RDZV_TOKEN_FILE", "MGPU_INSECURE", "MGPU_DRY_RUN",     "MGPU_JSON"};

constexpr std::array<std::string_view, 37> kSession{"HOME",
                                                    "USER",
                                                    "LOGNAME",
                                                    "SHELL",
                                                    "PWD",
                                                    "OLDPWD",
                                                    "SHLVL",
                                                    "_",
                                                    "MAIL",
                                                    "HOSTNAME",
                                                    "HOST",
                                                    "TERM",
                                                    "COLUMNS",
                                                    "LINES",
                                                    "TMPDIR",
                                                    "DISPLAY",
                                                    "XAUTHORITY",
                                                    "WINDOWID",
                                                    "TMUX",
                                                    "TMUX_PANE",
                                                    "STY",
                                                    "GPG_TTY",
                                                    "NOTIFY_SOCKET",
                                                    "JOURNAL_STREAM",
                                                    "INVOCATION_ID",
                                                    "MANAGERPID",
                                                    "WATCHDOG_USEC",
                                                    "WATCHDOG_PID",
                                                    "MGPU_JOB_COOKIE",
                                                    "JOB_COMPLETION_INDEX",
                                                    "IFS",
                                                    "ENV",
                                                    "PS1",
                                                    "PS2",
                                                    "PS4",
                                                    "OPTIND",
                                                    "LINENO"};

// A shell in POSIX mode exits when one of these is set.
constexpr std::array<std::string_view, 6> kReadOnly{"UID",      "EUID",      "PPID",
                                                    "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO"};

constexpr std::array<std::string_view, 17> kPrefixes{
    "SSH_",   "XDG_",    "DBUS_",  "WAYLAND_",    "LISTEN_", "SYSTEMD_",
    "SLURM_", "SLURMD_", "SRUN_",  "SBATCH_",     "OMPI_",   "PMIX_",
    "PMI_",   "PRTE_",   "PRRTE_", "KUBERNETES_", "FLUX_"};

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [letter](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_plain(char c) {
  return c >= 0x20 && c < 0x7f;
}

}  // namespace

static_assert(exit_status::kCannotEnter == 126);
const char* const kRunStdinScript =
    "exec /bin/sh -c 'while IFS= read -r mgpu_l; do eval \"$mgpu_l\"; done; exit 126'";

bool is_inherited(std::string_view name) {
  return !contains(kOurs, name);
}

bool is_forwarded(std::string_view name) {
  return is_identifier(name) && is_inherited(name) && !contains(kSession, name) &&
         !contains(kReadOnly, name) &&
         std::none_of(kPrefixes.begin(), kPrefixes.end(),
                      [name](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string sh_value(std::string_view value) {
  std::string text;
  const bool plain = std::all_of(value.begin(), value.end(), is_plain);
  for (const char c : value) {
    if (c == '\'')
      text += "'\\''";
    else if (plain || (is_plain(c) && c != '\\' && c != '%'))
      text += c;
    else
      text += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
  }
  return plain ? fmt::format("'{}'", text) : fmt::format("\"$(printf -- '{}x')\"", text);
}

std::string script_of(const RemoteProgram& program) {
  // The output of printf ends with an x, because $( ) removes trailing newlines.
  const auto assign = [](const std::string& name, std::string_view value) {
    const auto text = sh_value(value);
    return text.front() == '"' ? fmt::format("{0}={1};{0}=${{{0}%x}};", name, text)
                               : fmt::format("{}={};", name, text);
  };
  std::string script;
  if (!program.workdir.empty())
    script += assign("mgpu_d", program.workdir) +
              fmt::format("cd \"$mgpu_d\" || exit {}\n", exit_status::kCannotEnter);
  for (const auto& entry : program.environment) {
    const auto name = entry.substr(0, entry.find('='));
    script +=
        assign(name, std::string_view(entry).substr(name.size() + 1)) + "export " + name + "\n";
  }
  script += "set --\n";
  for (const auto& word : program.args)
    script += assign("mgpu_v", word) + "set -- \"$@\" \"$mgpu_v\"\n";
  script += assign("mgpu_p", program.exe) + "[ -x \"$mgpu_p\" ] || mgpu_p=${mgpu_p##*/}\n";
  script += fmt::format("printf '%s\\n' '{0}'\nprintf '%s\\n' '{0}' >&2\n", kStartLine);
  return script + "exec \"$mgpu_p\" \"$@\"\n";
}

}  // namespace mgpu::launcher
