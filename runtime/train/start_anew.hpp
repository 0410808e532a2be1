#pragma once

#include <string>

#include "rendezvous/contract.hpp"
#include "runtime/config/config.hpp"

namespace mgpu::train {

// What overwrite_output_dir means for an attempt of a job: resume_from_checkpoint is "no" until an
// attempt has deleted what earlier jobs saved, and "auto" for the attempts after it. Throws
// RecipeError if the recipe trains something that would be deleted.
void decide_start(TrainConfig& config, const rendezvous::Contract& contract);

// Deletes the checkpoints and the final model that earlier runs saved in output_dir. Files of
// others stay: checkpoints have a manifest of ours, and a folder with a final model of ours has a
// training_status.json. One process calls it, before the first save.
void delete_earlier_run(const TrainConfig& config, const rendezvous::Contract& contract);

}  // namespace mgpu::train
