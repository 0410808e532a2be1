#pragma once

#include <string>

namespace mgpu::checkpoint {

enum class HubKind { model, dataset };

// The folder of a model or adapter: `name` itself if it is a folder, else the snapshot of that Hub
// id in the local cache (HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub). `revision`: a
// branch, a tag or a full commit id. Downloads nothing: if the model is missing or incomplete,
// throws an error with the command that downloads it.
std::string resolve_model(const std::string& name, const std::string& revision = "main");

// The same for its config.json alone: other files may be missing.
std::string resolve_model_config(const std::string& name, const std::string& revision = "main");

std::string hub_cache();  // the cache folder

// "org/name" or "name", as the Hub allows.
bool is_hub_id(const std::string& name);

// The folder of a Hub id in the cache. It need not exist.
std::string hub_repository(HubKind kind, const std::string& name);

// The snapshot of a Hub id; empty if it is not in the cache. It may be incomplete. Throws if the
// revision is malformed.
std::string find_snapshot(HubKind kind, const std::string& name, const std::string& revision);

// The first file of a model or adapter that is missing from a folder; empty if it is complete.
std::string missing_model_file(const std::string& folder);

}  // namespace mgpu::checkpoint
