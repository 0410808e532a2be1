#pragma once

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mgpu::fuzz {

// As much of a POSIX shell as the scripts that start agents need: quotes, variables, "$@", printf
// in a command substitution and of a line to stderr, cd, export, set, exec, and || after a command
// that succeeds. Aborts at anything else, because such a script would run something that was not
// meant.
class Shell {
 public:
  // Runs a script line by line, as `read` and `eval` do. Nothing may follow the exec.
  void run(std::string_view script) {
    while (!script.empty()) {
      require(program.empty());
      const auto end = script.find('\n');
      require(end != script.npos);
      run_line(script.substr(0, end));
      script.remove_prefix(end + 1);
    }
    require(!program.empty());
  }

  std::vector<std::string> program;  // of exec: the file and its arguments
  std::map<std::string, std::string> exported;
  std::string folder;
  std::string lines;   // what it wrote to stdout
  std::string errors;  // and to stderr

 private:
  using Words = std::vector<std::string>;

  static void require(bool what) {
    if (!what) std::abort();
  }

  void run_line(std::string_view line) {
    text_ = line;
    while (!text_.empty()) {
      run_command();
      if (take(" || ")) {  // the command before it succeeds
        const auto kept = *this;
        run_command();
        const auto rest = text_;
        *this = kept;
        text_ = rest;
      }
      if (!text_.empty()) require(take(";"));
    }
  }

  void run_command() {
    if (const auto name = assigned_name(); !name.empty()) {
      text_.remove_prefix(name.size() + 1);
      Words value = read_word();
      require(value.size() == 1);
      variables_[name] = value[0];
      return;
    }
    Words words = read_word();
    while (!text_.starts_with(" ||") && !text_.starts_with(" >") && take(" "))
      for (auto& word : read_word()) words.push_back(std::move(word));
    if (take(" >&2")) {
      require(words.size() == 3 && words[0] == "printf" && words[1] == "%s\\n");
      errors += words[2] + "\n";
    } else if (words.at(0) == "printf") {
      require(words.size() == 3 && words[1] == "%s\\n");
      lines += words[2] + "\n";
    } else {
      execute(words);
    }
  }

  void execute(const Words& words) {
    const auto& command = words.at(0);
    if (command == "cd") {
      require(words.size() == 2);
      folder = words[1];
    } else if (command == "export") {
      require(words.size() == 2);
      exported[words[1]] = variables_.at(words[1]);
    } else if (command == "set") {
      require(words.size() >= 2 && words[1] == "--");
      arguments_.assign(words.begin() + 2, words.end());
    } else if (command == "exec") {
      program.assign(words.begin() + 1, words.end());
      require(!program.empty());
    } else {
      require((command == "[" && words.back() == "]") || (command == "exit" && words.size() == 2));
    }
  }

  // The variable, if an assignment comes next.
  std::string assigned_name() const {
    std::size_t end = 0;
    while (end < text_.size() && is_of_name(text_[end])) ++end;
    const bool is_assignment = end > 0 && end < text_.size() && text_[end] == '=';
    return is_assignment ? std::string(text_.substr(0, end)) : "";
  }

  // The fields that the next word expands to: one, unless it is "$@".
  Words read_word() {
    if (take("\"$@\"")) return arguments_;
    std::string word;
    while (!text_.empty() && text_[0] != ' ' && text_[0] != ';' && text_[0] != ')') {
      if (take("'")) {
        const auto end = text_.find('\'');
        require(end != text_.npos);
        word += text_.substr(0, end);
        text_.remove_prefix(end + 1);
      } else if (take("\\")) {
        require(!text_.empty());
        word += next();
      } else if (take("\"")) {
        while (!take("\"")) word += read_quoted();
      } else if (take("${")) {
        word += read_trimmed();
      } else {
        require(is_of_name(text_[0]) ||
                std::string_view("-[]/.").find(text_[0]) != std::string_view::npos);
        word += next();
      }
    }
    return {word};
  }

  // What comes next within double quotes.
  std::string read_quoted() {
    require(!text_.empty());
    if (take("$(")) {
      const Words command = read_word();
      require(command == Words{"printf"} && take(" -- "));
      auto output = printed(read_word().at(0));
      require(take(")"));
      while (output.ends_with('\n')) output.pop_back();
      return output;
    }
    if (!take("$")) {
      require(text_[0] != '\\' && text_[0] != '`');
      return {next()};
    }
    std::string name;
    while (!text_.empty() && is_of_name(text_[0])) name += next();
    return variables_.at(name);
  }

  // After "${": NAME%x} or NAME##*/}
  std::string read_trimmed() {
    std::string name;
    while (!text_.empty() && is_of_name(text_[0])) name += next();
    std::string value = variables_.at(name);
    if (take("%x}")) {
      if (value.ends_with('x')) value.pop_back();
    } else {
      require(take("##*/}"));
      value.erase(0, value.rfind('/') + 1);
    }
    return value;
  }

  // What printf prints for a format without operands.
  static std::string printed(std::string_view format) {
    std::string out;
    while (!format.empty()) {
      require(format[0] != '%');
      if (format[0] != '\\') {
        out += format[0];
        format.remove_prefix(1);
        continue;
      }
      unsigned value = 0;
      std::size_t digits = 0;
      while (digits < 3 && digits + 1 < format.size() && format[digits + 1] >= '0' &&
             format[digits + 1] <= '7')
        value = value * 8 + static_cast<unsigned>(format[++digits] - '0');
      require(digits == 3 && value > 0 && value < 256);
      out += static_cast<char>(value);
      format.remove_prefix(4);
    }
    return out;
  }

  static bool is_of_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  }

  bool take(std::string_view expected) {
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }

  char next() {
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }

  std::string_view text_;  // the rest of the line
  std::map<std::string, std::string> variables_;
  Words arguments_;
};

}  // namespace mgpu::fuzz
