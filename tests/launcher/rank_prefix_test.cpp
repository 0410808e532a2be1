#include "launcher/event_loop/rank_prefix.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

std::string prefix(const std::string& prefix_template) {
  Options options;
  options.role = "trainer";
  options.prefix_template = prefix_template;
  return rank_prefix(options, {.rank = 6, .local_rank = 2}, 1, "host-b");
}

}  // namespace

TEST_CASE("without a template the prefix is the role and the local rank", "[output]") {
  CHECK(prefix("") == "[trainer2]:");
}

TEST_CASE("both forms of a variable are replaced in a prefix template", "[output]") {
  CHECK(prefix("<${role_name}/${rank}/$local_rank> ") == "<trainer/6/2> ");
  CHECK(prefix("$hostname:${node_rank} $rank$rank ") == "host-b:1 66 ");
}

TEST_CASE("other dollar signs in a prefix template are left unchanged", "[output]") {
  CHECK(prefix("$ ${other} $$ ") == "$ ${other} $$ ");
}
