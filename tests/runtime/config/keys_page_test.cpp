#include "runtime/config/keys/reference_page.hpp"

#include <fstream>
#include <iterator>

#include "runtime/config/keys/key_table.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::train;

namespace {

const std::string kMark = "<!-- What follows is printed by `mgpu-train keys`. -->\n";

}  // namespace

TEST_CASE("the reference page lists the keys as they are", "[keys]") {
  std::ifstream in(TRAINING_PAGE);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const auto mark = page.find(kMark);
  REQUIRE(mark != page.npos);
  INFO("put what `mgpu-train keys` prints below the mark in docs/training.md");
  CHECK((page.substr(mark + kMark.size()) == keys_markdown()));
}

TEST_CASE("every name of every key is on the page", "[keys]") {
  const auto page = keys_markdown();
  for (const auto& key : config_keys()) {
    CAPTURE(key.name);
    CHECK(page.find("`" + key.name + "`") != page.npos);
    for (const auto& alias : key.aliases) CHECK(page.find("`" + alias + "`") != page.npos);
  }
}
