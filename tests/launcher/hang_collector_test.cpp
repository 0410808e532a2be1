#include "launcher/event_loop/hang_collector.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Evidence = Hang::Evidence;

TEST_CASE("the evidence explains a hang, and may name another rank", "[hang]") {
  struct Case {
    const char* name;
    Hang hang;
    OddRank odd;
    int rank;
    std::string end;
  };
  const std::string evidence = "rank 2 is in barrier";
  const auto [name, hang, odd, rank, end] = GENERATE_COPY(values<Case>({
      {"the same rank",
       {.rank = 2, .why = Evidence::behind, .like = {2}, .step = 4, .highest_step = 5},
       {2, evidence},
       2,
       "; rank 2 has completed 4 steps, other ranks 5; rank 2 is in barrier"},
      {"another rank",
       {.rank = 1, .why = Evidence::behind, .like = {1}, .step = 4, .highest_step = 5},
       {2, evidence},
       2,
       "(limit 0.0 s, from --hang-timeout); rank 2 is in barrier"},
      {"no rank",
       {.rank = 1, .why = Evidence::behind, .like = {1}, .step = 4, .highest_step = 5},
       {{}, "no rank differs from the others"},
       1,
       "; rank 1 has completed 4 steps, other ranks 5"},
      {"a suspended rank",
       {.rank = 2, .why = Evidence::suspended, .like = {2}},
       {2, evidence},
       2,
       "; rank 2 is suspended by a signal or a debugger"},
      {"ranks that had looked alike",
       {.rank = 0, .why = Evidence::none, .like = {0, 1, 2}, .step = 4, .highest_step = 4},
       {2, evidence},
       2,
       "(limit 0.0 s, from --hang-timeout); rank 2 is in barrier"},
      {"ranks that look alike",
       {.rank = 0, .why = Evidence::none, .like = {0, 1, 2}, .step = 4, .highest_step = 4},
       {{}, "the ranks wait for each other"},
       0,
       "(limit 0.0 s, from --hang-timeout); the ranks wait for each other"},
      {"a rank that has exited",
       {.rank = 0, .why = Evidence::none, .like = {0, 1}, .step = 4, .highest_step = 4},
       {3, "rank 3 is no longer running"},
       0,
       "(limit 0.0 s, from --hang-timeout); rank 3 is no longer running"},
  }));
  CAPTURE(name);
  const auto found =
      with_findings(hang, {.odd = odd, .folder = "/logs/hang", .problem = ""}, {0, 1, 2});
  CHECK(found.rank == rank);
  CHECK(found.evidence == "/logs/hang");
  CHECK_THAT(cause_of(found).text, Catch::Matchers::EndsWith(end));
}
