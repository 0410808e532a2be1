#include "runtime/data/order.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/random.hpp"

namespace mgpu::data {

namespace {

// The purpose of a random number stream.
enum Purpose : std::uint64_t { kSplit = 1, kOrder = 2, kShare = 3, kLeaveOut = 4 };

std::uint64_t copies(const Selection& s) {
  return static_cast<std::uint64_t>(s.weight);
}

std::uint64_t extra(const Selection& s) {
  const double fraction = s.weight - std::floor(s.weight);
  return static_cast<std::uint64_t>(
      std::llround(fraction * static_cast<double>(s.examples.size())));
}

// Adds the share of a source's examples that this epoch contains once more.
void append_extra(const Selection& selection, std::uint64_t source, std::uint64_t seed,
                  std::int64_t epoch, std::vector<std::uint32_t>& out) {
  const std::uint64_t count = extra(selection);
  const std::uint64_t all = selection.examples.size();
  if (count == 0) return;
  std::vector<std::uint32_t> places(all);
  std::iota(places.begin(), places.end(), 0U);
  Random random({seed, kShare, source});
  shuffle(places, random);
  const std::uint64_t first = static_cast<std::uint64_t>(epoch) % all * count % all;
  std::vector<std::uint32_t> chosen;
  for (std::uint64_t i = 0; i < count; ++i) chosen.push_back(places[(first + i) % all]);
  std::sort(chosen.begin(), chosen.end());
  for (const std::uint32_t place : chosen) out.push_back(selection.examples[place]);
}

}  // namespace

std::vector<std::uint32_t> Split::all() const {
  std::vector<std::uint32_t> examples;
  for (const Selection& s : train)
    examples.insert(examples.end(), s.examples.begin(), s.examples.end());
  return examples;
}

Split split(std::span<const SourceRange> ranges, double val_set_size, std::uint64_t seed,
            std::span<const std::uint32_t> left_out) {
  std::vector<std::uint32_t> places;
  for (const SourceRange& range : ranges)
    for (std::uint32_t i = range.first; i < range.first + range.count; ++i)
      if (!std::binary_search(left_out.begin(), left_out.end(), i)) places.push_back(i);
  const auto all = places.size();
  const bool fraction = val_set_size < 1;
  if (!(val_set_size >= 0) || (!fraction && val_set_size != std::floor(val_set_size)))
    throw rendezvous::InputError(
        fmt::format("val_set_size is {}; it must be a fraction below 1 or a whole number of rows",
                    val_set_size));
  const double wanted =
      fraction ? std::ceil(val_set_size * static_cast<double>(all) - 1e-6) : val_set_size;
  if (wanted > 0 && wanted >= static_cast<double>(all))
    throw rendezvous::InputError(fmt::format(
        "val_set_size {} takes all {} examples and leaves none to train on", val_set_size, all));

  const auto count = static_cast<std::size_t>(wanted);
  Random random({seed, kSplit});
  const auto remaining = places;
  shuffle_first(places, count, random);
  Split out;
  out.validation.assign(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count));
  std::sort(out.validation.begin(), out.validation.end());

  auto taken = out.validation.begin();
  auto next = remaining.begin();
  for (const SourceRange& range : ranges) {
    Selection selection{.weight = range.weight};
    for (; next != remaining.end() && *next < range.first + range.count; ++next)
      if (taken != out.validation.end() && *taken == *next)
        ++taken;
      else
        selection.examples.push_back(*next);
    out.train.push_back(std::move(selection));
  }
  return out;
}

void leave_out(std::vector<Selection>& selections, double share, std::uint64_t seed) {
  std::vector<std::uint32_t> examples;
  for (const Selection& s : selections)
    examples.insert(examples.end(), s.examples.begin(), s.examples.end());
  const auto count = static_cast<std::size_t>(share * static_cast<double>(examples.size()));
  Random random({seed, kLeaveOut});
  shuffle_first(examples, count, random);
  examples.resize(count);
  std::sort(examples.begin(), examples.end());
  for (Selection& s : selections)
    std::erase_if(s.examples, [&](std::uint32_t example) {
      return std::binary_search(examples.begin(), examples.end(), example);
    });
}

std::uint64_t epoch_size(std::span<const Selection> selections) {
  std::uint64_t size = 0;
  for (const Selection& s : selections) size += copies(s) * s.examples.size() + extra(s);
  return size;
}

std::vector<std::uint32_t> epoch_order(std::span<const Selection> selections, std::uint64_t seed,
                                       std::int64_t epoch, bool shuffled) {
  std::vector<std::uint32_t> order;
  order.reserve(epoch_size(selections));
  for (std::size_t source = 0; source < selections.size(); ++source) {
    const Selection& s = selections[source];
    for (std::uint64_t i = 0; i < copies(s); ++i)
      order.insert(order.end(), s.examples.begin(), s.examples.end());
    append_extra(s, source, seed, epoch, order);
  }
  if (shuffled) {
    Random random({seed, kOrder, static_cast<std::uint64_t>(epoch)});
    shuffle(order, random);
  }
  return order;
}

}  // namespace mgpu::data
