#include "launcher/nodes/status_command.hpp"

#include <algorithm>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;

namespace {

// Written with single quotes for readability.
std::string answer() {
  std::string text =
      "{'job': 'j', 'target': 'train.py', 'leader': 'a', 'state': 'gathering', 'for_s': 1.25,"
      " 'round': 2, 'restarts': 1, 'max_restarts': 3, 'missing': '1 of 2 nodes joined (a)',"
      " 'nodes': ["
      "{'host': 'a', 'node_rank': 0, 'state': 'waiting', 'for_s': 600, 'address': '10.0.0.1',"
      " 'ranks': [0, 1, 2, 3]},"
      "{'host': 'b', 'node_rank': 1, 'state': 'lost', 'for_s': 10800.0, 'address': '10.0.0.2',"
      " 'ranks': [4]},"
      "{'host': 'c', 'node_rank': null, 'state': 'spare', 'for_s': 0, 'address': '',"
      " 'ranks': []}]}";
  std::replace(text.begin(), text.end(), '\'', '"');
  return text;
}

}  // namespace

TEST_CASE("the answer of a leader is shown as a table", "[status]") {
  const std::string text = status_text(answer());
  CHECK_THAT(text,
             Contains("j (train.py): gathering for 1.2 s, round 2, 1 of 3 restarts, led by a"));
  auto renewed = answer();
  renewed.insert(1, "\"renewed_by_progress\": true,");
  CHECK_THAT(status_text(renewed), Contains("round 2, 1 restarts, led by a"));
  CHECK_THAT(text, Contains("waiting: 1 of 2 nodes joined (a)"));
  CHECK_THAT(text, Contains("10.0 min") && Contains("3.0 h"));
  CHECK_THAT(text, Contains("0-3") && Contains("10.0.0.2") && Contains("spare"));
}

TEST_CASE("an invalid answer is a one-line error", "[status]") {
  const auto cut = static_cast<std::size_t>(GENERATE(0, 1, 50, 200, 400));
  CHECK_THROWS_WITH(status_text(answer().substr(0, cut)),
                    "cannot parse the leader's answer; use the same version of mgpu-run");
  for (const char* bad : {"[]", "{}", "3", R"({"job": 3})"})
    CHECK_THROWS_WITH(status_text(bad),
                      "cannot parse the leader's answer; use the same version of mgpu-run");
}

TEST_CASE("the progress of ranks is a table of its own", "[status]") {
  auto with = answer();
  const std::string ranks = "\"ranks\": [4]";
  with.replace(with.find(ranks), ranks.size(),
               ranks +
                   R"(, "progress": [{"rank": 4, "step": 120, "phase": "training", "step_ms": 250,)"
                   R"( "busy_ms": 211.6, "skew": 1.417, "straggler": true},)"
                   R"( {"rank": 5, "phase": "loading"}])");
  CHECK_THAT(status_text(answer()), !Contains("own work"));
  const auto text = status_text(with);
  CHECK_THAT(text, Contains("rank  host  step  phase     step time  own work  skew"));
  CHECK_THAT(text, Contains("4     b     120   training  250 ms     212 ms    1.42"));
  CHECK_THAT(text, Contains("5     b     -     loading   -          -         -"));
  CHECK_THAT(text, Contains("rank 4 on b is a straggler: its own work takes 212 ms per step, that "
                            "of the other ranks 149 ms (1.42 times as long); the others wait up to "
                            "62 ms in every step\n"));
}

TEST_CASE("the memory of ranks and GPUs is shown below the table", "[status]") {
  auto job = answer();
  const std::string memory =
      R"("memory": {"host": {"used": 31138512896, "total": 34359738368},
      "ranks": [{"rank": 4, "bytes": 1073741824, "children_bytes": 0},
                {"rank": 5, "bytes": 1073741824, "children_bytes": 2097152}],
      "gpus": [{"gpu": 2, "used": 82678120448, "total": 85899345920, "utilization": 98,
                "temperature": 61, "reduced_clock": ""},
               {"gpu": 3, "used": 0, "total": 85899345920, "utilization": -1,
                "temperature": -1, "reduced_clock": "heat"}]}, )";
  job.insert(job.find("\"host\": \"b\""), memory);
  const auto text = status_text(job);
  CHECK_THAT(text, Contains("host memory: 29.0 of 32.0 GiB\n"));
  CHECK_THAT(text, Contains("rank 4: 1.0 GiB\nrank 5: 1.0 GiB, its children 2.0 MiB\n"));
  CHECK_THAT(text, Contains("GPU 2: 77.0 of 80.0 GiB, 98 % busy, 61 °C\n"));
  CHECK_THAT(text, Contains("GPU 3: 0.0 of 80.0 GiB, reduced clock because of heat\n"));
}
