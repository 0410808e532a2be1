#include "runtime/telemetry/event_file.hpp"

#include <unistd.h>

#include <filesystem>

#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using namespace std::string_literals;

TEST_CASE("CRC-32C agrees with the check values of RFC 3720", "[events]") {
  CHECK(crc32c("123456789") == 0xE3069283u);
  CHECK(crc32c("") == 0);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43u);
}

TEST_CASE("a TFRecord has its length and both masked checksums", "[events]") {
  const auto record = tf_record("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  CHECK(record.substr(0, 8) == "\3\0\0\0\0\0\0\0"s);
  CHECK(record.substr(12, 3) == "abc");
  const auto number_at = [&](std::size_t at) {
    std::uint32_t number = 0;
    for (int i = 3; i >= 0; --i)
      number = number << 8 | static_cast<unsigned char>(record[at + static_cast<std::size_t>(i)]);
    return number;
  };
  CHECK(number_at(8) == masked_crc32c(record.substr(0, 8)));
  CHECK(number_at(15) == masked_crc32c("abc"));
}

TEST_CASE("events have protobuf's encoding", "[events]") {
  // wall_time = 1.0
  const auto time = "\x09\0\0\0\0\0\0\xF0\x3F"s;
  CHECK(version_event(1) == time +
                                "\x1A\x0D"
                                "brain.Event:2");
  // step = 300, summary { value { tag: "a" simple_value: 0.5 } }
  CHECK(scalar_event(1, 300, "a", 0.5) == time + "\x10\xAC\x02" + "\x2A\x0A" + "\x0A\x08" +
                                              "\x0A\x01"
                                              "a" +
                                              "\x15\0\0\0\x3F"s);
  // session_log { status: START }
  CHECK(restart_event(1, 7) == time + "\x10\x07" + "\x3A\x02\x08\x01");
}

TEST_CASE("an event file is named as TensorBoard looks for it and grows record by record",
          "[events]") {
  TempDir dir(TempDir::in_memory());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto name = event_file_name(1700000000.9);
  CHECK(name == "events.out.tfevents.1700000000." + std::string(host) + "." +
                    std::to_string(::getpid()) + ".0");
  EventFile file(dir.root(), 1700000000.9, [](const std::string& what) { FAIL(what); });
  CHECK(file.path() == dir.path(name));
  const auto version = tf_record(version_event(1700000000.9));
  CHECK(read_text(file.path()) == version);
  file.add(restart_event(1, 2));
  CHECK(read_text(file.path()) == version + tf_record(restart_event(1, 2)));
}
