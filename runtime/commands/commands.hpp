#pragma once

#include "runtime/config/command_line.hpp"

// The commands of mgpu-train other than training. Each function returns the exit status.
namespace mgpu::recipes {

int check(const train::CheckCommand& command);
int plan(const train::PlanCommand& command);
int init(const train::InitCommand& command);
int quickstart(const train::QuickstartCommand& command);
int generate(const train::GenerateCommand& command);
int merge(const train::MergeCommand& command);
int quantize(const train::QuantizeCommand& command);
int train_tokenizer(const train::TrainTokenizerCommand& command);
int view_data(const train::DataCommand& command);
int score(const train::ScoreCommand& command);

}  // namespace mgpu::recipes
