// The hosts of a job and how their agents are started. The low 2 bits of the first byte select how
// the rest is used:
//   0, 1  as a hostfile
//   2     as a scheduler's host list
//   3     as parts between zero bytes: the folder, the program, then NAME=VALUE for each variable
//         that is forwarded, and the arguments. A model of a shell runs the script that is sent.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/hostfile.hpp"
#include "launcher/options/hostlist.hpp"
#include "launcher/ssh_launch/forwarded_environment.hpp"
#include "tests/fuzz/sh_model.hpp"

using namespace mgpu::launcher;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

void check_message(std::string_view message) {
  require(!message.empty() && message.size() < 600);
  for (const char c : message) require(static_cast<unsigned char>(c) >= 0x20);
}

// ssh and shells must see a name, never an option or syntax.
void check_name(std::string_view name) {
  require(!name.empty() && name.front() != '-');
  require(name.find_first_of(" \t\r\n'\"`$&|;<>()\\*?[]{}!#~=/,") == name.npos);
  for (const char c : name) require(c > 0x20 && c < 0x7f);
}

void read_hosts(const std::string& text) {
  try {
    const auto hosts = parse_hostfile(text, "f");
    require(!hosts.empty() && hosts.size() <= 4096);
    for (const auto& host : hosts) {
      check_name(host.name);
      if (!host.user.empty()) check_name(host.user);
      require(host.slots.value_or(1) >= 1 && host.slots.value_or(1) <= kMostRanks);
      require(host.line >= 1);
    }
  } catch (const UsageError& e) {
    check_message(e.what());
    require(std::string_view(e.what()).starts_with("f:"));
  }
}

void read_list(std::string_view text) {
  try {
    const auto names = expand_hostlist(text);
    require(!names.empty() && names.size() <= 65536);
    for (const auto& name : names) require(!name.empty() && name.size() <= 255);
  } catch (const UsageError& e) {
    check_message(e.what());
  }
}

// A shell's time grows with the square of its words.
constexpr std::size_t kMostParts = 1000;

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto end = text.find('\0');
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos || parts.size() == kMostParts) return parts;
    text.remove_prefix(end + 1);
  }
}

void start(std::string_view text) {
  RemoteProgram program;
  std::map<std::string, std::string> variables;
  std::size_t index = 0;
  for (auto& part : parts_of(text)) {
    const auto equals = part.find('=');
    const auto name = part.substr(0, equals);
    if (index == 0) {
      program.workdir = part;
    } else if (index == 1) {
      program.exe = part;
    } else if (equals != part.npos && is_forwarded(name) && !name.starts_with("mgpu_")) {
      variables[name] = part.substr(equals + 1);
      program.environment.push_back(part);
    } else {
      program.args.push_back(part);
    }
    ++index;
  }
  const auto script = script_of(program);
  for (const char c : script) require(c == '\n' || (c >= 0x20 && c < 0x7f));
  require(script.size() <= 64 * text.size() + 1000);
  mgpu::fuzz::Shell shell;
  shell.run(script);
  std::vector<std::string> expected{program.exe};
  expected.insert(expected.end(), program.args.begin(), program.args.end());
  require(shell.program == expected && shell.exported == variables);
  require(shell.folder == program.workdir);
  const auto line = std::string(kStartLine) + "\n";
  require(shell.lines == line && shell.errors == line);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(input) + 1, size - 1);
  switch (input[0] & 3) {
    case 2:
      read_list(rest);
      break;
    case 3:
      start(rest);
      break;
    default:
      read_hosts(std::string(rest));
  }
  return 0;
}
