// The interface between the trainer and the plug-in that reads Parquet and Arrow files. The plug-in
// is the only file that uses Arrow's libraries; it is loaded when such a file is met.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// A message without a line feed, cut to the size.
struct MgpuColumnarError {
  char text[1024];
  bool is_of_system;  // a system call failed; else the file is wrong
};

// Some rows, one JSON object per line; valid until the next call.
struct MgpuColumnarRows {
  const char* text;
  std::size_t size;
};

struct MgpuColumnarReader;

// The functions of the plug-in. None of them throws.
struct MgpuColumnarPlugin {
  // Null: `error` says why.
  MgpuColumnarReader* (*open)(const char* path, bool is_parquet, MgpuColumnarError* error);
  // 1: rows; 0: the end; -1: `error` says why.
  int (*next)(MgpuColumnarReader* reader, MgpuColumnarRows* rows, MgpuColumnarError* error);
  // The columns that rows lack because of their types: "image (binary), when (timestamp[ms])".
  const char* (*skipped)(const MgpuColumnarReader* reader);
  void (*close)(MgpuColumnarReader* reader);
};

// The symbol that the plug-in exports.
__attribute__((visibility("default"))) const MgpuColumnarPlugin* mgpu_columnar_plugin();
}
