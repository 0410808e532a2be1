#include "runtime/text/jinja/arguments.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::text::jinja {

Parameters::Parameters(std::string_view callee, const Arguments& given,
                       std::initializer_list<std::string_view> names, std::size_t required) {
  if (given.positional.size() > names.size())
    throw Failure(fmt::format("{} takes at most {} argument(s), {} were given", callee,
                              names.size(), given.positional.size()));
  for (std::size_t i = 0; i < given.positional.size(); ++i) values_[i] = &given.positional[i];
  for (const auto& [name, value] : given.named) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw Failure(fmt::format("{} has no argument '{}'", callee, name));
    auto& slot = values_[static_cast<std::size_t>(found - names.begin())];
    if (slot) throw Failure(fmt::format("{} got two values for argument '{}'", callee, name));
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i])
      throw Failure(fmt::format("{} needs the argument '{}'", callee, names.begin()[i]));
}

}  // namespace mgpu::text::jinja
