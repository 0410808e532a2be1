#include "runtime/data/report_lines.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::data;

TEST_CASE("a file whose rows all became examples leaves no line", "[report_lines]") {
  CHECK(lines_of({.path = "a.jsonl", .rows = 3, .kept = 3}, 64).empty());
}

TEST_CASE("rows that are not trained on as they are leave counted lines", "[report_lines]") {
  SourceReport report{.path = "a.jsonl", .rows = 20, .kept = 16};
  report.bad = 2;
  report.bad_rows = {"a.jsonl:5: no JSON", "a.jsonl:9: no JSON"};
  report.lost = 1;
  report.lost_prompt = "a.jsonl:7: \" \"";
  report.truncated = 4;
  report.dropped = 2;
  report.notes = {"texts are not ended by one"};
  CHECK(lines_of(report, 64) ==
        std::vector<std::string>{
            "a.jsonl: texts are not ended by one",
            "a.jsonl: 2 of 20 rows skipped as bad; the first: a.jsonl:5: no JSON",
            "a.jsonl: 1 of 20 rows whose prompt's end is learnt too, being one token with what "
            "follows it; the first: a.jsonl:7: \" \"",
            "a.jsonl: 4 of 20 rows cut to max_length 64",
            "a.jsonl: 2 of 20 rows left out: no label within max_length 64"});
}
