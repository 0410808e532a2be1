#include <stdlib.h>

#include <cstdio>
#include <exception>
#include <string>

#include "runtime/recipes/sft.hpp"
#include "runtime/train/resolve.hpp"

using namespace mgpu;

int main(int argc, char** argv) {
  try {
    rendezvous::Contract contract;
    if (getenv("RANK") != nullptr) contract = rendezvous::Contract::from_environment(getenv);
    train::RecipeOptions options;
    for (int i = 2; i < argc; ++i)
      if (std::string(argv[i]) == "--set" && i + 1 < argc) options.set.emplace_back(argv[++i]);
    const auto config = train::read_recipe(argv[1], options);
    return recipes::sft(config, contract);
  } catch (const std::exception& e) {
    fprintf(stderr, "mgpu-train: %s\n", e.what());
    return 1;
  }
}
