#pragma once

#include <string>
#include <vector>

namespace mgpu::hub {

// Whether a dataset's folder has a file with rows that can be read.
bool has_rows(const std::string& folder);

// The files of a split, such as train, in a dataset's folder, in the order of their names. They are
// those that the card of the dataset (README.md) lists for the configuration `subset` (empty: the
// default one); without such a list, the files whose name or folder contains the split's name, or
// all if no name contains that of any split. Throws if there are none; the message names `dataset`
// and what there is.
std::vector<std::string> split_files(const std::string& folder, const std::string& dataset,
                                     const std::string& subset, const std::string& split);

}  // namespace mgpu::hub
