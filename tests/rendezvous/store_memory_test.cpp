#include "rendezvous/store/memory.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::store;

namespace {

bool wait_for(Memory& memory, ClientId client, std::vector<std::string_view> keys) {
  return memory.wait(client, keys);
}

std::string value(const Memory& memory, std::string_view key) {
  const auto* found = memory.get(key);
  return found ? *found : "(none)";
}

}  // namespace

TEST_CASE("COMPARE_SET behaves as in c10d", "[store][memory]") {
  Memory memory;
  SECTION("no value and an empty expected value: stores") {
    CHECK(memory.compare_set("k", "", "new").value == "new");
    CHECK(value(memory, "k") == "new");
  }
  SECTION(
      "no value but a non-empty expected value: stores nothing and returns the expected value") {
    CHECK(memory.compare_set("k", "old", "new").value == "old");
    CHECK_FALSE(memory.exists("k"));
  }
  SECTION("the expected value: replaces") {
    CHECK(memory.set("k", "old").empty());
    CHECK(memory.compare_set("k", "old", "new").value == "new");
    CHECK(value(memory, "k") == "new");
  }
  SECTION("another value: returns it") {
    CHECK(memory.set("k", "other").empty());
    CHECK(memory.compare_set("k", "old", "new").value == "other");
    CHECK(value(memory, "k") == "other");
  }
  SECTION("only storing releases waiting clients") {
    CHECK_FALSE(wait_for(memory, 1, {"k"}));
    CHECK(memory.compare_set("k", "old", "new").released.empty());
    CHECK(memory.compare_set("k", "", "new").released == Released{1});
  }
}

TEST_CASE("ADD counts in decimal and rejects values that are not numbers", "[store][memory]") {
  Memory memory;
  CHECK(memory.add("n", 5)->value == 5);
  CHECK(memory.add("n", -7)->value == -2);
  CHECK(value(memory, "n") == "-2");

  SECTION("a value that starts with a number is parsed like std::stoll") {
    CHECK(memory.set("n", " 12abc").empty());
    CHECK(memory.add("n", 1)->value == 13);
  }
  SECTION("a value that is not a number, or too large, stays unchanged") {
    const std::string word = GENERATE(as<std::string>(), "", "abc", "-", "9223372036854775808");
    CHECK(memory.set("n", word).empty());
    CHECK_FALSE(memory.add("n", 1));
    CHECK(value(memory, "n") == word);
  }
  SECTION("the sum wraps around") {
    CHECK(memory.set("n", "9223372036854775807").empty());
    CHECK(memory.add("n", 1)->value == INT64_MIN);
  }
}

TEST_CASE("APPEND creates or extends a value", "[store][memory]") {
  Memory memory;
  CHECK_FALSE(wait_for(memory, 1, {"k"}));
  CHECK(memory.append("k", "one") == Released{1});
  CHECK(memory.append("k", "two").empty());
  CHECK(value(memory, "k") == "onetwo");
  CHECK(memory.bytes() == 7);
}

TEST_CASE("a WAIT ends when the last of its keys exists", "[store][memory]") {
  Memory memory;
  CHECK(memory.set("here", "").empty());
  CHECK(wait_for(memory, 1, {"here"}));
  CHECK(wait_for(memory, 1, {}));
  CHECK_FALSE(wait_for(memory, 1, {"here", "a", "b"}));
  CHECK(memory.set("a", "").empty());
  CHECK(memory.set("a", "again").empty());

  SECTION("by any operation that creates a key") {
    SECTION("SET") {
      CHECK(memory.set("b", "") == Released{1});
    }
    SECTION("ADD") {
      CHECK(memory.add("b", 1)->released == Released{1});
    }
    SECTION("APPEND") {
      CHECK(memory.append("b", "") == Released{1});
    }
    SECTION("QUEUE_PUSH") {
      CHECK(memory.push("b", "") == Released{1});
    }
    SECTION("BARRIER") {
      CHECK(memory.barrier(2, "b", 5)->released == Released{1});
    }
    memory.stop_waiting(2);
    CHECK(memory.waiting() == 0);
  }
  SECTION("a key that existed and was deleted still counts") {
    CHECK(memory.remove("a"));
    CHECK(memory.set("b", "") == Released{1});
  }
  SECTION("a client that stopped waiting is not released") {
    memory.stop_waiting(1);
    CHECK(memory.waiting() == 0);
    CHECK(memory.set("b", "").empty());
  }
  SECTION("a new WAIT replaces the old one") {
    CHECK_FALSE(wait_for(memory, 1, {"c"}));
    CHECK(memory.set("b", "").empty());
    CHECK(memory.set("c", "") == Released{1});
  }
  SECTION("a key named twice counts once") {
    CHECK_FALSE(wait_for(memory, 1, {"d", "d"}));
    CHECK(memory.set("d", "") == Released{1});
  }
  SECTION("all waiting clients are released in order of arrival") {
    CHECK_FALSE(wait_for(memory, 3, {"b"}));
    CHECK_FALSE(wait_for(memory, 2, {"b"}));
    CHECK(memory.set("b", "") == Released{1, 3, 2});
  }
}

TEST_CASE("a queue returns values in order and releases one client per push", "[store][memory]") {
  Memory memory;
  CHECK_FALSE(memory.pop("q"));
  CHECK_FALSE(wait_for(memory, 1, {"q"}));
  CHECK_FALSE(wait_for(memory, 2, {"q", "other"}));
  CHECK_FALSE(wait_for(memory, 3, {"q"}));

  CHECK(memory.push("q", "first") == Released{1});
  CHECK(memory.push("q", "second") ==
        Released{3});  // client 2 has seen the queue and waits for another key
  CHECK(memory.set("other", "") == Released{2});
  CHECK(memory.exists("q"));
  CHECK(memory.queue_length("q") == 2);
  CHECK(memory.pop("q") == "first");
  CHECK(memory.pop("q") == "second");
  CHECK_FALSE(memory.exists("q"));

  SECTION("a queue is not a value") {
    CHECK(memory.push("q", "x").empty());
    CHECK(memory.get("q") == nullptr);
    CHECK_FALSE(memory.remove("q"));
    CHECK(memory.keys() == 1);  // "other"
  }
}

TEST_CASE("a BARRIER ends when the last client has arrived", "[store][memory]") {
  Memory memory;
  CHECK_FALSE(memory.barrier(1, "b", 3)->passed);
  CHECK_FALSE(memory.barrier(2, "b", 3)->passed);
  CHECK(value(memory, "b") == "2");

  SECTION("and releases the others") {
    const auto last = memory.barrier(3, "b", 3);
    CHECK(last->passed);
    CHECK(last->released == Released{1, 2});
    CHECK(memory.waiting() == 0);
    CHECK(memory.barrier(4, "b", 3)->passed);  // late clients pass as well
  }
  SECTION("a client that gave up is counted and not released") {
    memory.stop_waiting(1);
    CHECK(memory.barrier(3, "b", 3)->released == Released{2});
  }
  SECTION("other operations on the key do not end it") {
    CHECK(memory.set("b", "2").empty());
    CHECK(memory.add("b", 0)->released.empty());
    CHECK(memory.barrier(3, "b", 3)->released == Released{1, 2});
  }
  SECTION("a value that is not a number is rejected") {
    CHECK(memory.set("b", "x").empty());
    CHECK_FALSE(memory.barrier(3, "b", 3));
  }
}

TEST_CASE("the store reports its size", "[store][memory]") {
  Memory memory;
  CHECK(memory.set("key", "12345").empty());
  CHECK(memory.set("key", "1").empty());
  CHECK(memory.push("q", "22").empty());
  CHECK(memory.add("n", 100)->value == 100);
  CHECK(memory.keys() == 2);
  CHECK(memory.bytes() == 4 + 3 + 4);
  CHECK(memory.pop("q") == "22");
  CHECK(memory.remove("key"));
  CHECK_FALSE(memory.remove("key"));
  CHECK(memory.bytes() == 4);

  CHECK_FALSE(wait_for(memory, 1, {"never"}));
  memory.clear();
  CHECK(memory.keys() == 0);
  CHECK(memory.bytes() == 0);
  CHECK(memory.waiting() == 0);
  CHECK(memory.set("never", "").empty());
}

TEST_CASE("a small value does not keep the memory of a large one", "[store][memory]") {
  Memory memory;
  for (int i = 0; i < 3; ++i) {
    CHECK(memory.set("k", std::string(1 << 20, 'x')).empty());
    CHECK(memory.set("k", "small").empty());
    CHECK(memory.get("k")->capacity() < 1000);
  }
}
