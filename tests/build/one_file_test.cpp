#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/catch.hpp"

// This program is linked as mgpu-run is: a static libstdc++ and libgcc over launcher/shims.cpp.

namespace {

int refuse_to_compare(const void*, const void*) {
  throw std::runtime_error("from the callback");
}

void sort_through_libc() {
  int values[] = {3, 1, 2};
  std::qsort(values, 3, sizeof values[0], refuse_to_compare);
}

}  // namespace

TEST_CASE("an exception unwinds through our frames and those of libc", "[one-file]") {
  CHECK_THROWS_WITH(sort_through_libc(), "from the callback");
}

TEST_CASE("an exception that a static library throws is caught by its type", "[one-file]") {
  CHECK_THROWS_AS(std::stoi("no number"), std::invalid_argument);
  CHECK_THROWS_AS(std::string("short").at(99), std::out_of_range);
}

TEST_CASE("an exception is caught in the thread that threw it", "[one-file]") {
  std::string caught;
  std::thread thread([&caught] {
    try {
      sort_through_libc();
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
  });
  thread.join();
  CHECK(caught == "from the callback");
}

TEST_CASE("std::random_device does not repeat itself", "[one-file]") {
  std::random_device device;
  std::set<unsigned> values;
  for (int i = 0; i < 8; ++i) values.insert(device());
  CHECK(values.size() >= 7);
}

TEST_CASE("numbers are parsed as by the C library", "[one-file]") {
  char* end = nullptr;
  const char* text = "-42 rest";
  CHECK(std::strtol(text, &end, 10) == -42);
  CHECK(end == text + 3);
  CHECK(std::strtoul("0x1f", nullptr, 0) == 31);
  CHECK(std::strtoll("-9000000000", nullptr, 10) == -9'000'000'000);
  CHECK(std::strtoull("18446744073709551615", nullptr, 10) == 18'446'744'073'709'551'615u);
  int number = 0;
  char word[8] = "";
  CHECK(std::sscanf("7 ranks", "%d %7s", &number, word) == 2);
  CHECK(number == 7);
  CHECK(std::string(word) == "ranks");
}
