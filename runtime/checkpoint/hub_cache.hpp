#pragma once

#include <string>

namespace mgpu::checkpoint {

// The folder of a model or adapter: `name` itself if it is one, else the snapshot of that Hub id
// in the local cache (HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub). `revision`: a
// branch, a tag or a whole commit id. Nothing is downloaded: what is missing, wholly or in part,
// is named with the command that fetches it.
std::string resolve_model(const std::string& name, const std::string& revision = "main");

std::string hub_cache();  // where it looks

}  // namespace mgpu::checkpoint
