#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rl {

// How many completions dynamic sampling generates for a group of this size: half more.
std::int64_t generated_for(std::int64_t group);

// MiniOneRec's dynamic sampling: chooses `group` of these completions, by their numbers. First
// those that name the item `target`; then one of every other text, the most frequent text first,
// and so on in rounds. Requires: at least `group` texts.
std::vector<std::size_t> varied_completions(std::span<const std::string_view> texts,
                                            std::string_view target, std::size_t group);

}  // namespace mgpu::rl
