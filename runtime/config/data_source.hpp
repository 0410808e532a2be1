#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mgpu::train {

// How a dataset names what the row formats name; runtime/data/row_mapping.hpp describes the fields.
struct ColumnNames {
  std::map<std::string, std::string> columns, message_fields, roles;
  std::string prompt_format, no_input_format, system_format = "{system}", system_text;
};

// One source of rows. Its rows are used `weight` times per epoch (2: twice).
struct DataSource {
  std::string path;  // of a file or a folder, a pattern of files, or the name of a dataset
  double weight = 1;
  // Its configuration (empty: the default one), its split with slices such as train[:10%], and the
  // branch, tag or commit of a dataset of a hub.
  std::string subset = {}, split = "train", revision = "main";
  bool is_path = false;  // never the name of a dataset

  std::string data_dir = {};                 // the only folder of the dataset that is read
  std::vector<std::string> data_files = {};  // the only files of the dataset, or patterns of them
  std::string file_type = {};                // csv, json, ...; empty: by name and contents
  std::int64_t max_samples = 0;              // only so many rows from the beginning; 0: all
  std::string info_folder = {};              // its dataset_info.json may have an entry `path`
  std::size_t dataset = 0;                   // files of one dataset have the same number
  std::size_t mixed_as = 0;                  // its number in the recipe, which mixtures refer to

  // Instead of dataset_format, dataset_text_field and assistant_only_loss of the recipe.
  std::string format = {}, text_field = {};
  std::optional<bool> assistant_only_loss = {};
  ColumnNames names = {};
};

}  // namespace mgpu::train
