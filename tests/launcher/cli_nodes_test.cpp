// Options of multi-node jobs.
#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using mgpu::tests::parse;

TEST_CASE(
    "multi-node options that torchrun lacks are read from the command line and the environment",
    "[cli]") {
  const auto plain = parse({"x"});
  CHECK(plain.keep_alive == Milliseconds(5000));
  CHECK(plain.rdzv_token_file.empty());
  CHECK_FALSE(plain.rdzv_token_stdin);
  CHECK_FALSE(plain.insecure);

  const auto o = parse({"--keep-alive", "0.5", "--rdzv-token-file", "token", "--insecure",
                        "--rdzv-token-stdin", "x"});
  CHECK(o.keep_alive == Milliseconds(500));
  CHECK(o.rdzv_token_file == "token");
  CHECK(o.rdzv_token_stdin);
  CHECK(o.insecure);

  const auto from_variables = parse({"x"}, {{"MGPU_KEEP_ALIVE", "2.5"},
                                            {"MGPU_RDZV_TOKEN_FILE", "token"},
                                            {"MGPU_RDZV_TOKEN_STDIN", "1"},
                                            {"MGPU_INSECURE", "1"}});
  CHECK(from_variables.keep_alive == Milliseconds(2500));
  CHECK(from_variables.rdzv_token_file == "token");
  CHECK(from_variables.insecure);
  CHECK_FALSE(from_variables.rdzv_token_stdin);  // an mgpu-run within a rank must not read stdin
}

TEST_CASE("a keep-alive too short for a busy machine is rejected", "[cli]") {
  const auto* bad = GENERATE("0.4", "0", "-1", "x");
  CAPTURE(bad);
  CHECK_THROWS_AS(parse({"--keep-alive", bad, "x"}), UsageError);
  CHECK_THROWS_WITH(parse({"--keep-alive=0.499", "x"}),
                    "--keep-alive 0.499: need seconds from 0.5 to 31622400, for example 30 or 2.5");
}

TEST_CASE("internal options have no abbreviation", "[cli]") {
  CHECK(parse({"--rdzv-token", "f", "x"}).rdzv_token_file == "f");
  CHECK_THROWS_WITH(parse({"--rdzv-token-std", "x"}),
                    !Catch::Matchers::Contains("--rdzv-token-stdin"));
}
