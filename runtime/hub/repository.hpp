#pragma once

#include <string>
#include <vector>

namespace mgpu::hub {

enum class Site { huggingface, modelscope };

// What a run needs of a repository.
enum class Part {
  settings,          // of a model: its configuration and its tokenizer
  tokenizer,         // of a model: its tokenizer
  model,             // the same with weights
  adapter_settings,  // the configuration of an adapter
  adapter,           // the same with weights, and with its tokenizer if it has one
  rows,              // of a dataset: its files
};

// A model, an adapter or a dataset of a hub, and what is needed of it.
struct Repository {
  Site site = Site::huggingface;
  Part part = Part::model;
  std::string name;               // owner/name; of a dataset also a plain name
  std::string revision = "main";  // a branch, a tag or a commit
  bool own_tokenizer = true;      // of a model: false if another tokenizer is used

  bool is_dataset() const { return part == Part::rows; }
  friend bool operator==(const Repository&, const Repository&) = default;
};

// Whether a value of a recipe has the form of a name.
bool looks_like_model(const std::string& value);
bool looks_like_dataset(const std::string& value);

// Whether it is a name: it has the form of one, and neither it nor its part before the slash exists
// here as a path.
bool is_model_name(const std::string& value);
bool is_dataset_name(const std::string& value);

// "model", "adapter" or "dataset".
std::string noun(const Repository& repository);
// The command that a user can download it with.
std::string download_command(const Repository& repository);

// Shell patterns of the files that are needed, relative to the repository; at least two.
std::vector<std::string> patterns(Part part);

// The folder with its files: the snapshot in the cache of its hub. Empty: there is none. Throws if
// the revision is malformed.
std::string cached_folder(const Repository& repository);
// The first needed file that is missing from the folder; empty: none is.
std::string missing_file(const Repository& repository, const std::string& folder);

// Where the program of the hub keeps the repository; it need not exist.
std::string repository_folder(const Repository& repository);
// A file in the cache that one process at a time locks to download this repository.
std::string lock_path(const Repository& repository);

}  // namespace mgpu::hub
