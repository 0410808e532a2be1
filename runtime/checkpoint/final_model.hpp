#pragma once

#include <string>

namespace mgpu::checkpoint {

// A model that is being written for the folder FOLDER: the hidden folder FOLDER/.final-model.tmp-*,
// whose files publish() moves into FOLDER. Whenever the process dies, FOLDER has the old model, the
// new one or none, but never a mixture that a program would load:
//
//   files, each fsynced  ->  remove the configuration and the index of old models  ->  fsync FOLDER
//     ->  remove their other files, move the new ones in  ->  fsync FOLDER
//     ->  move the new index and then the configuration in  ->  fsync FOLDER
//
// Destroying an unpublished draft removes it. One process owns the draft.
class FinalModelDraft {
 public:
  explicit FinalModelDraft(std::string folder);
  FinalModelDraft(const FinalModelDraft&) = delete;
  FinalModelDraft& operator=(const FinalModelDraft&) = delete;
  ~FinalModelDraft();

  const std::string& path() const { return path_; }

  // The models in FOLDER that the new one replaces: a whole model with its tokenizer, and an
  // adapter. An adapter in a subfolder is replaced if the draft has one in the same subfolder.
  struct Replaced {
    bool whole = true, adapter = true;
  };
  void publish(const Replaced& replaced);

 private:
  std::string folder_, path_;
};

// Removes the model and the adapter in a folder, with their tokenizer, as publish() does before it
// puts another model there.
void remove_final_model(const std::string& folder);

}  // namespace mgpu::checkpoint
