#include "runtime/train/start_anew.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/small_file.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/final_model.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/gemm_table.hpp"
#include "runtime/train/oom_state.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStatusFile = "training_status.json";  // written by every run
// The id of the job that has deleted what there was.
constexpr const char* kMarkFile = ".started-anew";

fs::path mark_of(const TrainConfig& config) {
  return fs::path(config.output_dir) / kMarkFile;
}

bool is_inside(const std::string& path, const std::string& folder) {
  if (path.empty() || !rendezvous::is_there(path)) return false;
  const auto inner = fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !inner.empty() && *inner.begin() != "..";
}

}  // namespace

void decide_start(TrainConfig& config, const rendezvous::Contract& contract) {
  if (!config.overwrite_output_dir) return;
  for (const auto& [key, path] : {std::pair("model_name_or_path", config.model_name_or_path),
                                  std::pair("adapter_path", config.adapter_path),
                                  std::pair("tokenizer_path", config.tokenizer_path)})
    if (is_inside(path, config.output_dir))
      throw_recipe_error(fmt::format(
          "overwrite_output_dir: {} {} is in output_dir and would be deleted; set another "
          "output_dir",
          key, path));
  const auto mark = rendezvous::read_small_file(mark_of(config).string(), 1000);
  const bool done = contract.restart_count > 0 && mark.complete() && mark.text == contract.run_id;
  config.resume_from_checkpoint = done ? "auto" : "no";
}

void delete_earlier_run(const TrainConfig& config, const rendezvous::Contract& contract) {
  std::error_code ignored;
  checkpoint::remove_all(config.output_dir);
  if (fs::exists(fs::path(config.output_dir) / kStatusFile, ignored))
    checkpoint::remove_final_model(config.output_dir);
  for (const char* file : {kOomFile, kGemmFile})
    fs::remove(fs::path(config.output_dir) / file, ignored);
  checkpoint::write_file(mark_of(config).string(), contract.run_id);
}

}  // namespace mgpu::train
