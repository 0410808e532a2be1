#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/rollout/beams.hpp"
#include "runtime/rollout/engine.hpp"

namespace mgpu::rollout {

// Searches the beams of prompts with an engine's model and KV cache: one call of Engine::generate.
// A beam shares the full pages of the beam that it continues, and copies the last page only if
// another beam continues that too. Each step waits for the device.
class BeamSearch {
 public:
  struct Parts {
    const EngineOptions& options;
    PagedModel& model;
    PagePool& pool;  // all of its pages are free
    Engine::Counts& counts;
  };
  // Everything must outlive it. The requests and the settings have been checked.
  BeamSearch(const Parts& parts, const std::vector<Request>& requests,
             const GenerationSettings& settings);

  // As Engine::generate.
  std::vector<std::vector<Completion>> run(const RequestFinished& finished);

 private:
  using PageList = std::vector<std::int32_t>;
  // The search for one request.
  struct Search {
    std::size_t request = 0;
    Beams beams;
    std::vector<PageList> pages;  // of each running beam
    std::int64_t reserved = 0;    // the pages that it can need
  };
  struct Copies {
    PageList from, to;
  };
  using Continuations = std::vector<std::vector<Beams::Continuation>>;  // of each search

  std::int64_t pages_for(std::size_t request) const;
  std::int64_t prompt_size(const Search& search) const;
  void start();
  Tensor prefill(std::span<const Search> searches);
  Tensor step(std::span<Search> searches);
  void advance(std::span<Search> searches, const Tensor& logits);
  Continuations continuations(std::span<const Search> searches, const Tensor& logits) const;
  Continuations most_likely(std::span<const Search> searches, const Tensor& logits) const;
  Continuations allowed(std::span<const Search> searches, const Tensor& logits) const;
  void move_pages(Search& search, Copies& copies);
  void release(Search& search);
  std::vector<Completion> completions_of(const Search& search) const;

  Parts parts_;
  const std::vector<Request>& requests_;
  const GenerationSettings& settings_;
  std::size_t next_ = 0;  // the first request that has not started
  std::vector<Search> searches_;
  std::int64_t unreserved_;  // pages
};

}  // namespace mgpu::rollout
