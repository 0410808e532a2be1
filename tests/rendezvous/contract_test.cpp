#include "rendezvous/contract.hpp"

#include <map>
#include <string>

#include "tests/support/catch.hpp"

using Catch::Matchers::Contains;
using mgpu::rendezvous::Contract;

namespace {

using Variables = std::map<std::string, std::string>;

Contract contract_from(const Variables& variables) {
  return Contract::from_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables variables_of(const Contract& contract) {
  const auto pairs = contract.to_environment();
  return {pairs.begin(), pairs.end()};
}

Contract some_contract() {
  Contract c;
  c.rank = 13;
  c.local_rank = 5;
  c.group_rank = 1;
  c.role_rank = 13;
  c.role_name = "trainer";
  c.world_size = 16;
  c.local_world_size = 8;
  c.group_world_size = 2;
  c.role_world_size = 16;
  c.master_addr = "10.0.0.4";
  c.master_port = 40123;
  c.restart_count = 2;
  c.max_restarts = 3;
  c.run_id = "job 1";
  c.agent_store = false;
  c.error_file = "/logs/5/error.json";
  c.oom_count = 1;
  return c;
}

}  // namespace

TEST_CASE("a worker reads what a launcher set", "[contract]") {
  const auto contract = some_contract();
  const auto variables = variables_of(contract);
  CHECK(variables.size() == 18);
  CHECK(contract_from(variables) == contract);
  CHECK(variables.at("TORCHELASTIC_USE_AGENT_STORE") == "False");
  CHECK(variables.at("GROUP_WORLD_SIZE") == "2");
  CHECK(variables.at("TORCHELASTIC_ERROR_FILE") == "/logs/5/error.json");
  CHECK(variables.at("MGPU_OOM_COUNT") == "1");
}

TEST_CASE("a worker learns whether lost ranks are replaced", "[contract]") {
  auto contract = some_contract();
  CHECK_FALSE(variables_of(contract).contains("MGPU_REPLACEMENT"));
  contract.replacement = 2;
  CHECK(variables_of(contract).at("MGPU_REPLACEMENT") == "2");
  CHECK(contract_from(variables_of(contract)) == contract);
}

TEST_CASE("a worker requires only the six variables that it needs to join", "[contract]") {
  const Variables least = {{"RANK", "3"},        {"LOCAL_RANK", "1"},
                           {"WORLD_SIZE", "4"},  {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
  const auto contract = contract_from(least);
  CHECK(contract.rank == 3);
  CHECK(contract.role_rank == 3);
  CHECK(contract.role_world_size == 4);
  CHECK(contract.role_name == "default");
  CHECK(contract.run_id == "none");
  CHECK_FALSE(contract.agent_store);

  for (const auto& [name, value] : least) {
    CAPTURE(name);
    auto fewer = least;
    fewer.erase(name);
    CHECK_THROWS_WITH(contract_from(fewer), Contains(name + " is not set although ") &&
                                                Contains(" is; start this program with mgpu-run"));
    fewer[name] = "";
    CHECK_THROWS_WITH(contract_from(fewer), Contains(name + " is not set"));
  }
}

TEST_CASE("an invalid variable is named with its valid values", "[contract]") {
  struct Case {
    const char* name;
    const char* value;
    const char* message;
  };
  const auto [name, value, message] = GENERATE(values<Case>({
      {"RANK", "16", "RANK=16 is not below WORLD_SIZE=16"},
      {"RANK", "-1", "RANK=-1: must be at least 0"},
      {"RANK", "1x", "RANK=1x: must be a whole number"},
      {"RANK", " 1", "RANK= 1: must be a whole number"},
      {"RANK", "99999999999", "RANK=99999999999: must be a whole number"},
      {"LOCAL_RANK", "8", "LOCAL_RANK=8 is not below LOCAL_WORLD_SIZE=8"},
      {"GROUP_RANK", "2", "GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"},
      {"ROLE_RANK", "16", "ROLE_RANK=16 is not below ROLE_WORLD_SIZE=16"},
      {"LOCAL_WORLD_SIZE", "17", "LOCAL_WORLD_SIZE=17 is more than WORLD_SIZE=16"},
      {"WORLD_SIZE", "0", "WORLD_SIZE=0: must be at least 1"},
      {"MASTER_PORT", "0", "MASTER_PORT=0: must be 1 to 65535"},
      {"MASTER_PORT", "65536", "MASTER_PORT=65536: must be 1 to 65535"},
      {"TORCHELASTIC_USE_AGENT_STORE", "1",
       "TORCHELASTIC_USE_AGENT_STORE=1: must be True or False"},
      {"MGPU_OOM_COUNT", "-2", "MGPU_OOM_COUNT=-2: must be at least 0"},
  }));
  auto variables = variables_of(some_contract());
  variables[name] = value;
  CHECK_THROWS_WITH(contract_from(variables), message);
}

TEST_CASE("an incomplete set of variables counts as present, and the missing one is named",
          "[contract]") {
  const auto is_present = [](const Variables& variables) {
    return Contract::is_present([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  CHECK_FALSE(is_present({{"MASTER_ADDR", "h"}, {"RANK", ""}}));
  CHECK(is_present({{"RANK", "0"}}));
  CHECK(is_present({{"LOCAL_RANK", "0"}}));
  CHECK(is_present({{"WORLD_SIZE", "4"}}));
  CHECK_THROWS_WITH(contract_from({{"WORLD_SIZE", "4"}}),
                    "RANK is not set although WORLD_SIZE=4 is; start this program with mgpu-run");
  CHECK_THROWS_WITH(contract_from({{"RANK", "0"}, {"LOCAL_RANK", "0"}}),
                    "WORLD_SIZE is not set although RANK=0 is; start this program with mgpu-run");
}
