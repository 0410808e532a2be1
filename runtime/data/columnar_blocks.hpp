#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/data/blocks.hpp"
#include "runtime/data/columnar_plugin.h"

namespace mgpu::data {

// The blocks of a Parquet or Arrow file, as JSONL. The plug-in that reads them is loaded with the
// first such file.
class ColumnarBlocks : public BlockReader {
 public:
  // Throws std::runtime_error with the path and what to do if the plug-in or pyarrow is missing, or
  // pyarrow has another version than the one that the plug-in was built with.
  ColumnarBlocks(const std::string& path, FileKind kind, std::uint64_t row_limit);

  bool next(Block& block) override;
  // The columns that rows lack because their types are not supported; empty: none.
  std::string skipped() const { return plugin_.skipped(reader_.get()); }

 private:
  std::string path_;
  std::uint64_t row_limit_;
  const MgpuColumnarPlugin& plugin_;
  std::unique_ptr<MgpuColumnarReader, void (*)(MgpuColumnarReader*)> reader_;
  std::size_t index_ = 0;
  std::uint64_t rows_ = 0;  // that were returned
};

}  // namespace mgpu::data
