#pragma once

#include <string>
#include <vector>

namespace mgpu::hub {

// Whether a dataset's folder has a file with rows that can be read.
bool has_rows(const std::string& folder);

// Which files of a dataset are wanted.
struct RowsRequest {
  std::string dataset;                       // its name, for messages
  std::string subset = {};                   // a configuration of its card; empty: the default one
  std::string split = "train";               // without slices
  std::string data_dir = {};                 // only files in this folder of it
  std::vector<std::string> data_files = {};  // only these files; shell patterns
};

// The files of a split in a dataset's folder, in the order of their names. They are those of
// data_files; or else those that the card of the dataset (README.md) lists for the configuration;
// without such a list, the files whose name or folder contains the split's name, or all if no name
// contains that of any split. Of files in several formats those of the most common one count.
// Throws if there are none; the message names the dataset and what there is.
std::vector<std::string> split_files(const std::string& folder, const RowsRequest& request);

}  // namespace mgpu::hub
