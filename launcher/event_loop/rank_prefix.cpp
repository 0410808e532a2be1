#include "launcher/event_loop/rank_prefix.hpp"

#include <utility>

#include <fmt/format.h>

namespace mgpu::launcher {

std::string rank_prefix(const Options& options, const RankSpec& spec, int node_rank,
                        const std::string& host) {
  std::string text = options.prefix_template;
  if (text.empty()) return fmt::format("[{}{}]:", options.role, spec.local_rank);
  const std::pair<const char*, std::string> variables[] = {
      {"role_name", options.role},
      {"local_rank", std::to_string(spec.local_rank)},
      {"rank", std::to_string(spec.rank)},
      {"node_rank", std::to_string(node_rank)},
      {"hostname", host}};
  for (const auto& [name, value] : variables)
    for (const auto& form : {fmt::format("${{{}}}", name), fmt::format("${}", name)})
      for (size_t at = 0; (at = text.find(form, at)) != std::string::npos; at += value.size())
        text.replace(at, form.size(), value);
  return text;
}

}  // namespace mgpu::launcher
