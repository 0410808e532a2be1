#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "runtime/rollout/engine.hpp"

// What an engine has in hand during one call; for its own files.
namespace mgpu::rollout {

struct Engine::Group {
  std::vector<std::int32_t> pages;  // of the prompt
  Tensor logits;                    // [vocab], behind its last token
  std::size_t to_start = 0;         // completions that have not begun
};

struct Engine::Sequence {
  std::size_t prompt = 0, index = 0;
  std::vector<std::int32_t> pages;
  std::vector<std::int32_t> read;  // the prompt; with a penalty only
  std::int32_t position = 0;       // of the token that is read next
  std::uint64_t seed = 0;
  Completion made;
};

struct Engine::Work {
  const std::vector<Prompt>& prompts;
  const Wanted& wanted;
  std::deque<std::pair<std::size_t, std::size_t>> waiting;  // prompt, index of the completion
  std::map<std::size_t, Group> groups;
  std::vector<Sequence> running;  // a slot each
  std::vector<std::vector<Completion>> made;
};

}  // namespace mgpu::rollout
