#include <string>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/lifecycle/error_file.hpp"
#include "launcher/lifecycle/report.hpp"
#include "launcher/nodes/progress_json.hpp"
#include "launcher/options/hostfile.hpp"
#include "launcher/options/hostlist.hpp"
#include "launcher/options/launch_file.hpp"
#include "launcher/ssh_launch/forwarded_environment.hpp"
#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/http/message.hpp"
#include "rendezvous/protocol.hpp"
#include "tests/limits/amplification.hpp"
#include "tests/support/catch.hpp"

using mgpu::tests::check_amplification;
using mgpu::tests::of_numbers;
using mgpu::tests::of_parts;

namespace {

void parse_hosts(const std::string& text) {
  mgpu::launcher::parse_hostfile(text, "hosts");
}

void parse_list(const std::string& text) {
  mgpu::launcher::expand_hostlist(text);
}

void parse_launch(const std::string& text) {
  mgpu::launcher::parse_recipe(text, "f");
}

void parse_accelerate(const std::string& text) {
  mgpu::launcher::parse_config(text, "f");
}

void parse_error(const std::string& text) {
  mgpu::launcher::parse_error_file(text);
  mgpu::launcher::python_exception_in(text);
}

void parse_attempt(const std::string& text) {
  mgpu::launcher::attempt_from_json(text);
  mgpu::launcher::progress_from_json(text);
}

void parse_message(const std::string& text) {
  mgpu::rendezvous::decode(text);
}

void parse_etcd(const std::string& text) {
  using namespace mgpu::rendezvous::etcd;
  RangeAnswer::parse(text);
  WatchAnswer::parse(text);
  TransactionAnswer::parse(text);
  ErrorAnswer::parse(text);
}

void parse_http(const std::string& text) {
  mgpu::rendezvous::http::ResponseParser parser;
  parser.feed(text);
  parser.end();
}

void write_script(const std::string& text) {
  mgpu::launcher::script_of(
      {.workdir = text, .environment = {"A=" + text}, .exe = text, .args = {text}});
}

}  // namespace

TEST_CASE("hosts cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_numbers("hosts", "", "h{}\n", "", parse_hosts),
           of_parts("the same host", "", "h\n", "", parse_hosts),
           of_parts("comments", "h\n", "#\n", "", parse_hosts),
           of_parts("one line", "", "h ", "", parse_hosts),
           of_parts("empty lines", "h\n", "\n", "", parse_hosts),
           of_numbers("a list", "", "h{},", "h", parse_list),
           of_parts("a list of ranges", "a[", "0-9,", "0]", parse_list),
           of_parts("a list of brackets", "a[0-65535]", "[1]", "", parse_list),
           of_parts("a list of products", "a", "[0-1]", "", parse_list),
       })
    check_amplification(one);
}

TEST_CASE("launch files cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_parts("nested lists", "launch: ", "[", "", parse_launch),
           of_parts("nested maps", "launch: ", "{a: ", "", parse_launch),
           of_parts("nested block lists", "launch:\n ", "- ", "", parse_launch),
           of_parts("nested block keys", "launch:\n ", "? ", "", parse_launch),
           of_numbers("keys", "launch:\n", "  k{}: 1\n", "", parse_launch),
           of_numbers("keys of another section", "model:\n", "  k{}: 1\n", "", parse_launch),
           of_parts("list", "launch: [", "1,", "]", parse_launch),
           of_numbers("anchors", "launch: [", "&a{} x,", "]", parse_launch),
           of_parts("aliases", "launch: [&a x,", "*a,", "]", parse_launch),
           of_parts("long text", "launch: ", "x", "\n", parse_launch),
           of_parts("quoted text", "launch: \"", "\\n", "\"\n", parse_launch),
           of_parts("documents", "", "---\n", "", parse_launch),
           of_parts("comments", "", "# x\n", "launch: {}\n", parse_launch),
           of_numbers("accelerate keys", "compute_environment: LOCAL_MACHINE\n", "k{}: 1\n", "",
                      parse_accelerate),
       })
    check_amplification(one);
}

TEST_CASE("files and messages of ranks and nodes cost memory and time in proportion to their bytes",
          "[limits]") {
  for (const auto& one : {
           of_parts("nested JSON", "", "[", "", parse_error),
           of_parts("nested objects", "", "{\"message\":", "", parse_error),
           of_parts("a long message", "{\"message\":{\"message\":\"", "x", "\"}}", parse_error),
           of_parts("traceback", "Traceback (most recent call last):\n", "  File \"a\", line 1\n",
                    "ValueError: x\n", parse_error),
           of_parts("tracebacks", "", "Traceback (most recent call last):\nE: x\n", "",
                    parse_error),
           of_parts("ranks", "{\"ranks\":[", "{},", "{}]}", parse_attempt),
           of_numbers("keys of an attempt", "{", "\"k{}\":1,", "\"k\":1}", parse_attempt),
           of_parts("control characters", "{\"stderr_tail\":\"", "\\u001b", "\"}", parse_attempt),
           of_numbers("keys of a message", "{\"type\":\"join\",", "\"k{}\":1,", "\"k\":1}",
                      parse_message),
           of_parts("list of a message", "{\"type\":[", "1,", "1]}", parse_message),
       })
    check_amplification(one);
}

TEST_CASE("etcd answers cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_parts("keys", "{\"header\":{\"revision\":\"1\"},\"kvs\":[",
                    "{\"key\":\"YQ==\",\"value\":\"YQ==\"},", "{}]}", parse_etcd),
           of_parts("events", "{\"result\":{\"events\":[", "{},", "{}]}}", parse_etcd),
           of_parts("nested", "{\"kvs\":", "[", "", parse_etcd),
           of_parts("headers", "HTTP/1.1 200 OK\r\n", "a: b\r\n", "\r\n", parse_http),
           of_parts("chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n",
                    "0\r\n\r\n", parse_http),
           of_parts("an endless header", "HTTP/1.1 200 OK\r\na: ", "x", "", parse_http),
       })
    check_amplification(one);
}

TEST_CASE("scripts for agents are not much longer than their words", "[limits]") {
  for (const auto& one : {
           of_parts("quotes", "", "'", "", write_script),
           of_parts("bytes", "", "\x80", "", write_script),
       })
    check_amplification(one);
}
