#pragma once

#include <string>

namespace mgpu::checkpoint {

// The folder of a model or adapter: `name` itself if it is a folder, else the snapshot of that Hub
// id in the local cache (HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub). `revision`: a
// branch, a tag or a full commit id. Downloads nothing: if the model is missing or incomplete,
// throws an error with the command that downloads it.
std::string resolve_model(const std::string& name, const std::string& revision = "main");

// The same for its config.json alone: other files may be missing.
std::string resolve_model_config(const std::string& name, const std::string& revision = "main");

std::string hub_cache();  // the cache folder

}  // namespace mgpu::checkpoint
