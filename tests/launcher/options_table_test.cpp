#include <algorithm>
#include <set>
#include <sstream>

#include "launcher/options/help.hpp"
#include "launcher/options/option_table.hpp"
#include "rendezvous/base/spelling.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using mgpu::rendezvous::nearest;
using mgpu::rendezvous::shown;

TEST_CASE("no two options share a name, a letter or a variable", "[options]") {
  std::multiset<std::string> names;
  for (const auto& spec : option_table()) {
    names.insert(spec.names.begin(), spec.names.end());
    names.insert(spec.file_keys.begin(), spec.file_keys.end());
    names.insert(spec.variables.begin(), spec.variables.end());
    if (spec.letter) names.insert(std::string(1, spec.letter));
  }
  for (const auto& name : names) {
    CAPTURE(name);
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("an option is found by each of its names", "[options]") {
  CHECK(find_option("nproc-per-node") == find_option('n'));
  CHECK(find_option("nproc_per_node") == find_option("nproc"));
  CHECK(find_option("npro") == nullptr);
  CHECK(find_option('\0') == nullptr);
  for (const auto& spec : option_table()) {
    CAPTURE(spec.name());
    CHECK((spec.torchrun.empty() || find_option(spec.torchrun) == &spec));
    CHECK((spec.completes == Completes::words) == !spec.choices.empty());
  }
}

TEST_CASE("the help fits about one screen and lists every option once", "[options]") {
  const auto help = help_text();
  CHECK(std::count(help.begin(), help.end(), '\n') <= 77);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
    CHECK((line.empty() || line.back() != ' '));
  }
  for (const auto& spec : option_table()) {
    CAPTURE(spec.name());
    const auto written = spec.is_flag() ? spec.name() : spec.name() + " " + spec.value;
    const auto where = help.find("--" + (spec.help.empty() ? spec.name() : written));
    CHECK((where == help.npos) == spec.internal);
  }
}

TEST_CASE("the suggested word is a plausible correction", "[options]") {
  const std::vector<std::string> known{"nproc", "nnodes", "max-restarts", "tee"};
  struct Case {
    std::string word, expected;
  };
  const auto c = GENERATE(values<Case>({
      {"nprocs", "nproc"},
      {"nrpoc", "nproc"},
      {"max-restart", "max-restarts"},
      {"nodes", "nnodes"},
      {"te", "tee"},
      {"frobnicate", ""},
      {"x", ""},
      {"", ""},
  }));
  CAPTURE(c.word);
  CHECK(nearest(c.word, known) == c.expected);
  CHECK(nearest(std::string(1'000'000, 'n'), known).empty());
}

TEST_CASE("input is shown on one line and cut between characters", "[options]") {
  CHECK(shown("") == "''");
  CHECK(shown("a\tb\nc") == "a?b?c");
  CHECK(shown("abcdef", 3) == "abc...");
  CHECK(shown("a\u00e9\u00e9", 2) == "a...");
  CHECK(shown("\u00e9") == "\u00e9");
}
