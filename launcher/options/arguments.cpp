#include "launcher/options/arguments.hpp"

#include <cctype>
#include <set>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::nearest;
using rendezvous::shown;
namespace {

[[noreturn]] void throw_unknown_option(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& spec : option_table())
    if (!spec.internal) known.insert(known.end(), spec.names.begin(), spec.names.end());
  const auto near = nearest(name, known);
  throw UsageError(fmt::format("unknown option --{}{}", name.empty() ? name : shown(name),
                               near.empty() ? "; see --help" : "; did you mean --" + near + "?"));
}

// Resolves a long name: an exact match, else an unambiguous abbreviation. An abbreviation that is
// unique among torchrun's options selects that option even if it is ambiguous among ours, because
// command lines written for torchrun must keep working.
const OptionSpec& resolve(std::string_view written) {
  const auto name = with_dashes(written);
  if (name.empty()) throw_unknown_option(name);
  if (const auto* exact = find_option(name)) return *exact;
  std::set<const OptionSpec*> ours, torchruns;
  std::string candidates;
  for (const auto& spec : option_table()) {
    if (!spec.torchrun.empty() && spec.torchrun.starts_with(name)) torchruns.insert(&spec);
    for (const auto& known : spec.names) {
      if (spec.internal || !known.starts_with(name)) continue;
      ours.insert(&spec);
      candidates += (candidates.empty() ? "--" : ", --") + known;
    }
  }
  if (ours.empty()) throw_unknown_option(std::string(written));
  if (torchruns.size() == 1) return **torchruns.begin();
  if (ours.size() == 1) return **ours.begin();
  throw UsageError(fmt::format("--{} is ambiguous: it matches {}; write more of the name",
                               shown(written), candidates));
}

bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) &&
         word[1] != '.';
}

// Parses the arguments of a command line one by one.
class ArgumentReader {
 public:
  explicit ArgumentReader(const std::vector<std::string>& words) : words_(words) {}

  Arguments read() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_];
      if (word == "--") {
        ++at_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++at_;
      word[1] == '-' ? read_long(std::string_view(word).substr(2)) : read_letters(word);
    }
    if (at_ < words_.size()) {
      found_.target = words_[at_];
      found_.rest.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_) + 1, words_.end());
    }
    return std::move(found_);
  }

 private:
  void read_long(std::string_view word) {
    const auto equals = word.find('=');
    const auto& spec = resolve(word.substr(0, equals));
    const auto name = fmt::format("--{}", word.substr(0, equals));
    if (equals != word.npos)
      add(spec, name, std::string(word.substr(equals + 1)));
    else
      add(spec, name, spec.is_flag() ? "1" : next_value(spec, name));
  }

  // -n4, -n 4, -n=4, and combined flags.
  void read_letters(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto name = fmt::format("-{}", word[i]);
      const auto* spec = find_option(word[i]);
      if (!spec) throw UsageError(fmt::format("unknown option {}; see --help", shown(name)));
      if (spec->is_flag()) {
        add(*spec, name, "1");
        continue;
      }
      const std::size_t begin = i + 1 + (word.compare(i + 1, 1, "=") == 0);
      add(*spec, name, i + 1 < word.size() ? word.substr(begin) : next_value(*spec, name));
      return;
    }
  }

  std::string next_value(const OptionSpec& spec, const std::string& name) {
    if (at_ == words_.size())
      throw UsageError(fmt::format("{}: needs a value, {}", name, spec.value));
    const std::string& word = words_[at_];
    if (looks_like_option(word))
      throw UsageError(
          fmt::format("{}: needs a value, {}, and {} looks like an option; write "
                      "{}={} if it is the value",
                      name, spec.value, shown(word, 32), name, shown(word, 32)));
    ++at_;
    return word;
  }

  void add(const OptionSpec& spec, std::string name, std::string value) {
    found_.settings.push_back({&spec, Source::line, std::move(name), std::move(value)});
  }

  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  Arguments found_;
};

}  // namespace

Origin Setting::origin() const {
  switch (source) {
    case Source::line:
      return {name, " ", value};
    case Source::mgpu:
    case Source::pet:
      return {name, "=", value};
    case Source::config:
    case Source::recipe:
      break;
  }
  return {name, ": ", value};
}

Arguments read_arguments(const std::vector<std::string>& words) {
  return ArgumentReader(words).read();
}

}  // namespace mgpu::launcher
