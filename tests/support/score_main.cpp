// score REWARD[,REWARD...] [SETTINGS]: what tests/peers/test_rewards.py compares with definitions
// in Python. Rows come on stdin; settings are a JSON object.

#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/rewards/score_file.hpp"

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: score REWARD[,REWARD...] [SETTINGS]");
    std::vector<std::string> names;
    std::istringstream list(argv[1]);
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    const auto settings = mgpu::rewards::read_settings(argc > 2 ? nlohmann::json::parse(argv[2])
                                                                : nlohmann::json::object());
    mgpu::rewards::score_rows(std::cin, "stdin", names, settings, std::cout);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "score: %s\n", e.what());
    return 1;
  }
}
