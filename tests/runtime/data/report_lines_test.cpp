#include "runtime/data/report_lines.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::data;

TEST_CASE("a file whose rows all became examples has no report lines", "[report_lines]") {
  CHECK(lines_of({.path = "a.jsonl", .rows = 3, .kept = 3}, 64).empty());
}

TEST_CASE("skipped, cut and dropped rows are reported with their counts", "[report_lines]") {
  SourceReport report{.path = "a.jsonl", .rows = 20, .kept = 16};
  report.bad = 2;
  report.bad_rows = {"a.jsonl:5: invalid JSON", "a.jsonl:9: invalid JSON"};
  report.lost = 1;
  report.lost_prompt = "a.jsonl:7: \" \"";
  report.unwritten_tools = 3;
  report.truncated = 4;
  report.dropped = 2;
  report.notes = {"a note"};
  CHECK(lines_of(report, 64) ==
        std::vector<std::string>{
            "a.jsonl: a note",
            "a.jsonl: 2 of 20 rows skipped as bad; the first: a.jsonl:5: invalid JSON",
            "a.jsonl: 1 of 20 rows with the end of the prompt in the loss, because one token spans "
            "prompt and completion; the first: a.jsonl:7: \" \"",
            "a.jsonl: 3 of 20 rows with tools or tool calls that the chat template does not write; "
            "to train on them, set chat_template to one that does",
            "a.jsonl: 4 of 20 rows cut to max_length 64",
            "a.jsonl: 2 of 20 rows dropped: no target token within max_length 64"});
}
