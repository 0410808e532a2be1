#include "runtime/train/job_gemms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "runtime/checkpoint/file.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/train/device.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestFile = 1 << 20;

// Texts between the ranks have the format of the file.
GemmTable table_of(const std::vector<ops::Gemm>& products) {
  GemmTable table;
  for (const auto& gemm : products) table.choices.push_back({.gemm = gemm, .algorithm = {}});
  return table;
}

}  // namespace

std::string why_not_reused(const GemmTable& saved, const std::string& library,
                           const std::string& device) {
  if (saved.library == library && saved.device == device) return {};
  return fmt::format("they are of {} on {}, and this run uses {} on {}", saved.library,
                     saved.device, library, device);
}

JobGemms::JobGemms(std::unique_ptr<ops::GemmLibrary> library, comm::Comm& comm, at::Device device,
                   std::string folder, double least_flops)
    : library_(std::move(library)), comm_(comm), device_(device), folder_(std::move(folder)) {
  const auto own = library_ ? library_->version() + " on " + library_->device() : "";
  const auto all = comm::gather_texts(comm_, own, device_, "all-gather of GPU models");
  if (std::ranges::count(all, "") > 0)
    obstacle_ = device_.is_cuda() ? "cuBLASLt is missing" : "there are no GPUs";
  else if (std::ranges::count(all, all.front()) != std::ssize(all))
    obstacle_ = "the ranks have different GPUs or versions of cuBLASLt";
  else
    choices_.emplace(*library_, least_flops);
}

std::string JobGemms::begin(const std::string& checkpoint, const std::optional<GemmTable>& saved) {
  if (!choices_) return fmt::format("gemm_choice: timed has no effect: {}", obstacle_);
  const auto file = (fs::path(folder_) / kGemmFile).string();
  const bool resumes = !checkpoint.empty();
  auto table = resumes ? saved : std::nullopt;
  if (!resumes) {
    std::string text;
    if (comm_.rank() == 0 && fs::exists(file)) text = checkpoint::read_file(file, kLongestFile);
    text = comm::share_text(comm_, text, device_, "broadcast of the choice of algorithms");
    try {
      if (!text.empty()) table = parse_gemm_table(text, file);
    } catch (const std::exception& e) {
      throw std::runtime_error(
          fmt::format("{}; remove the file, so that matrix products are timed again", e.what()));
    }
  }
  if (!table) return {};
  const auto why = why_not_reused(*table, library_->version(), library_->device());
  if (!why.empty())
    return fmt::format("the algorithms of matrix products in {} are chosen again: {}",
                       resumes ? checkpoint : file, why);
  choices_->add(table->choices);
  return {};
}

// Each product once, in the order of ranks.
std::vector<ops::Gemm> JobGemms::products_of_all_ranks(std::int64_t step) {
  const auto own = gemm_table_text(table_of(choices_->products_until(step)));
  std::set<ops::Gemm> known;
  for (const auto& choice : choices_->all()) known.insert(choice.gemm);
  std::vector<ops::Gemm> products;
  for (const auto& text :
       comm::gather_texts(comm_, own, device_, "all-gather of new matrix products"))
    for (const auto& choice : parse_gemm_table(text, "the products of a rank").choices)
      if (known.size() < ops::GemmChoices::kMost && known.insert(choice.gemm).second)
        products.push_back(choice.gemm);
  return products;
}

std::string JobGemms::choose(std::int64_t step) {
  if (!choices_) return {};
  const auto begin = std::chrono::steady_clock::now();
  wait_for(device_);
  const auto products = products_of_all_ranks(step);
  GemmTable found = table_of(products);
  for (auto& choice : found.choices) {
    if (comm_.rank() == 0) choice.algorithm = ops::fastest_algorithm(*library_, choice.gemm);
    choice.from_step = step + 2;  // the next one may be running
  }
  const auto text = comm::share_text(comm_, gemm_table_text(found), device_,
                                     "broadcast of the choice of algorithms");
  found = parse_gemm_table(text, "the choice of rank 0");
  choices_->add(found.choices);
  if (products.empty()) return {};
  if (comm_.rank() == 0)
    checkpoint::write_file((fs::path(folder_) / kGemmFile).string(), gemm_table_text(*table()));
  const auto faster = std::ranges::count_if(
      found.choices, [](const auto& choice) { return choice.algorithm.has_value(); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return fmt::format(
      "step {}: timed {} matrix products in {:.1f} s; {} of them use a faster algorithm than that "
      "of cuBLAS from step {} on",
      step + 1, products.size(), seconds.count(), faster, step + 3);
}

std::optional<GemmTable> JobGemms::table() const {
  if (!choices_) return {};
  return GemmTable{library_->version(), library_->device(), choices_->all()};
}

}  // namespace mgpu::train
