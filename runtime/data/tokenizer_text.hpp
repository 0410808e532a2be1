#pragma once

#include <string>
#include <vector>

#include "runtime/data/format.hpp"
#include "runtime/text/tokenizer_trainer.hpp"

namespace mgpu::data {

struct TextFile {
  std::string path;
  std::string type = {};  // if the name does not have the ending: csv, ...
  RowOptions rows = {};   // how its rows are read
};

struct TextOptions {
  bool skip_bad_rows = false;  // otherwise the first bad row is an error
  int threads = 0;             // 0: one per usable core
};

// The text of files from which a tokenizer is trained. A file whose name ends in .jsonl, .csv or
// another ending of rows contains rows: the columns of its format are read. Every other file is
// plain text, read line by line. Throws std::runtime_error with file and line for a bad row and for
// text that is not UTF-8, and for files without any text. The counts are the same with any number
// of threads.
text::TokenizerText read_text(const std::vector<TextFile>& files, text::TokenizerKind kind,
                              const TextOptions& options);

}  // namespace mgpu::data
