#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/rollout/engine.hpp"
#include "runtime/rollout/rows.hpp"

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

// Steps with one number of rows.
struct Engine::Bucket {
  Rows rows;
  ops::Recording step;

  Bucket(const RowsShape& shape, at::Device device, ops::Recording::Store& store,
         const std::function<void(Rows&)>& work)
      : rows(shape, device), step(store, [this, work] { work(rows); }) {}
};

struct Engine::Work {
  const std::vector<Prompt>& prompts;
  const Wanted& wanted;
  std::deque<std::pair<std::size_t, std::size_t>> waiting;  // prompt, index of the completion
  std::map<std::size_t, Group> groups;
  std::vector<Sequence> running;  // a slot each
  std::vector<std::vector<Completion>> made;
  ops::Recording::Store recordings;
  std::map<std::int64_t, std::unique_ptr<Bucket>> buckets;  // by their number of rows
};

}  // namespace mgpu::rollout
