#include "launcher/options/completion.hpp"

#include <fmt/format.h>

#include "launcher/options/option_table.hpp"

namespace mgpu::launcher {
namespace {

// TARGET ends the options, so the script examines the words before the cursor as read_arguments
// does. bash splits --nproc=4 into three words at the equals sign.
constexpr const char* kBash = R"(# bash completion for mgpu-run: source it, or put it into
# ~/.local/share/bash-completion/completions/mgpu-run
_mgpu_run() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" option="" i word
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    if [[ "$word" == "=" && -n "$option" ]]; then continue; fi
    if [[ -n "$option" ]]; then option=""; continue; fi
    case "$word" in
      {valued}) option="$word" ;;
      -?*) ;;
      *) compopt -o default 2>/dev/null; return ;;
    esac
  done
  if [[ "$cur" == "=" && -n "$option" ]]; then cur=""; fi
  case "$option" in
    "") ;;
{words}    {files}) COMPREPLY=($(compgen -f -- "$cur")); compopt -o filenames 2>/dev/null; return ;;
    {folders}) COMPREPLY=($(compgen -d -- "$cur")); compopt -o filenames 2>/dev/null; return ;;
    *) return ;;
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "{all}" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "devices doctor status" -- "$cur") $(compgen -f -- "$cur"))
    compopt -o filenames 2>/dev/null
  fi
}}
complete -F _mgpu_run mgpu-run
)";

// Every spelling of an option: --nproc, --nproc-per-node, -n.
std::vector<std::string> spellings(const OptionSpec& spec) {
  std::vector<std::string> all;
  for (const auto& name : spec.names) all.push_back("--" + name);
  if (spec.letter) all.push_back(fmt::format("-{}", spec.letter));
  return all;
}

std::string bash_pattern(bool (*wanted)(const OptionSpec&)) {
  std::vector<std::string> all;
  for (const auto& spec : option_table())
    if (wanted(spec))
      for (auto& word : spellings(spec)) all.push_back(std::move(word));
  return fmt::format("{}", fmt::join(all, "|"));
}

std::string bash_script() {
  std::string words, all;
  for (const auto& spec : option_table()) {
    if (spec.internal) continue;
    all += (all.empty() ? "--" : " --") + spec.name();
    if (spec.completes == Completes::words)
      words += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                           fmt::join(spellings(spec), "|"), fmt::join(spec.choices, " "));
  }
  return fmt::format(
      kBash, fmt::arg("words", words), fmt::arg("all", all),
      fmt::arg("valued", bash_pattern([](const OptionSpec& s) { return !s.is_flag(); })),
      fmt::arg("files",
               bash_pattern([](const OptionSpec& s) { return s.completes == Completes::files; })),
      fmt::arg("folders", bash_pattern([](const OptionSpec& s) {
                 return s.completes == Completes::folders;
               })));
}

std::string escaped(const std::string& text, const std::string& special) {
  std::string safe;
  for (const char c : text) {
    if (special.find(c) != special.npos) safe += '\\';
    safe += c;
  }
  return safe;
}

std::string zsh_action(const OptionSpec& spec) {
  switch (spec.completes) {
    case Completes::nothing:
      return " ";
    case Completes::files:
      return "_files";
    case Completes::folders:
      return "_files -/";
    case Completes::words:
      return fmt::format("({})", fmt::join(spec.choices, " "));
  }
  return " ";
}

std::string zsh_script() {
  std::string script =
      "#compdef mgpu-run\n# zsh completion for mgpu-run: put it into a folder of "
      "$fpath as _mgpu-run\n"
      "_mgpu_run_target() {\n"
      "  _alternative 'commands:command:(devices doctor status)' 'files:target:_files'\n"
      "}\n"
      "_arguments -S \\\n";
  for (const auto& spec : option_table()) {
    if (spec.internal) continue;
    const auto help = escaped(spec.help, "[]:\\");
    for (const auto& word : spellings(spec)) {
      const bool is_long = word[1] == '-';
      const auto value = spec.is_flag() ? "" : fmt::format(":{}:{}", spec.value, zsh_action(spec));
      script += fmt::format("  '{}{}{}[{}]{}' \\\n", spec.repeats ? "*" : "", word,
                            spec.is_flag() ? ""
                            : is_long      ? "="
                                           : "+",
                            help, value);
    }
  }
  return script + "  '1:target:_mgpu_run_target' \\\n  '*::arguments:_default'\n";
}

std::string fish_script() {
  std::string script =
      "# fish completion for mgpu-run: put it into ~/.config/fish/completions/mgpu-run.fish\n"
      "complete -c mgpu-run -n __fish_is_first_arg -a devices -d 'list the GPUs'\n"
      "complete -c mgpu-run -n __fish_is_first_arg -a doctor -d 'check this machine'\n"
      "complete -c mgpu-run -n __fish_is_first_arg -a status -d 'show the status of a job'\n";
  for (const auto& spec : option_table()) {
    if (spec.internal) continue;
    std::string line = "complete -c mgpu-run";
    if (spec.letter) line += fmt::format(" -s {}", spec.letter);
    for (const auto& name : spec.names) line += fmt::format(" -l {}", name);
    if (spec.completes == Completes::words)
      line += fmt::format(" -x -a '{}'", fmt::join(spec.choices, " "));
    else if (spec.completes == Completes::folders)
      line += " -x -a '(__fish_complete_directories)'";
    else if (!spec.is_flag())
      line += spec.completes == Completes::files ? " -r -F" : " -x";
    if (!spec.help.empty()) line += fmt::format(" -d '{}'", escaped(spec.help, "'\\"));
    script += line + "\n";
  }
  return script;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "zsh") return zsh_script();
  return shell == "fish" ? fish_script() : bash_script();
}

}  // namespace mgpu::launcher
