// The plug-in that reads Parquet and Arrow files with Arrow's libraries.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/io_util.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include "runtime/columnar/json_writer.hpp"
#include "runtime/data/columnar_plugin.h"

namespace {

constexpr std::int64_t kRowsOfBatch = 1024;  // of Parquet
constexpr std::size_t kTextBytes = std::size_t{1} << 20;

// A failed system call, which another attempt may not meet again.
class SystemFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void check(const arrow::Status& status) {
  if (status.ok()) return;
  const int error = arrow::internal::ErrnoFromStatus(status);
  if (error != 0)  // the message lacks it
    throw SystemFailure(status.message() + ": " + std::generic_category().message(error));
  if (status.IsOutOfMemory()) throw SystemFailure(status.message());
  throw std::runtime_error(status.message());
}

template <class T>
T value_of(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

void set_error(MgpuColumnarError* error, const std::exception& e) {
  error->is_of_system = dynamic_cast<const SystemFailure*>(&e) != nullptr ||
                        dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
  const std::string what = e.what();
  const auto line = what.substr(0, what.find('\n'));
  const auto size = std::min(line.size(), sizeof(error->text) - 1);
  std::memcpy(error->text, line.data(), size);
  error->text[size] = '\0';
}

// A file of Arrow's file format, whose batches are read by their numbers.
class FileBatches : public arrow::RecordBatchReader {
 public:
  explicit FileBatches(std::shared_ptr<arrow::ipc::RecordBatchFileReader> file)
      : file_(std::move(file)) {}

  std::shared_ptr<arrow::Schema> schema() const override { return file_->schema(); }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    *batch = nullptr;
    if (next_ < file_->num_record_batches()) {
      ARROW_ASSIGN_OR_RAISE(*batch, file_->ReadRecordBatch(next_++));
    }
    return arrow::Status::OK();
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
  int next_ = 0;
};

}  // namespace

struct MgpuColumnarReader {
  std::shared_ptr<arrow::io::RandomAccessFile> file;
  std::unique_ptr<parquet::arrow::FileReader> parquet_file;
  std::shared_ptr<arrow::RecordBatchReader> batches;
  std::vector<int> columns;  // that can be written
  std::string skipped;
  std::shared_ptr<arrow::RecordBatch> batch;
  std::int64_t row = 0;  // of the batch
  std::string text;

  MgpuColumnarReader(const char* path, bool is_parquet) {
    file = value_of(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
    is_parquet ? open_parquet() : open_arrow();
    const auto schema = batches->schema();
    for (int i = 0; i < schema->num_fields(); ++i) {
      const auto& field = schema->field(i);
      if (mgpu::columnar::is_supported(*field->type())) {
        columns.push_back(i);
      } else {
        skipped +=
            (skipped.empty() ? "" : ", ") + field->name() + " (" + field->type()->ToString() + ")";
      }
    }
  }

  bool next_text() {
    text.clear();
    while (text.size() < kTextBytes) {
      if (!batch || row == batch->num_rows()) {
        check(batches->ReadNext(&batch));
        row = 0;
        if (!batch) break;
        check(batch->Validate());
        continue;
      }
      write_row();
      ++row;
    }
    return !text.empty();
  }

 private:
  void open_parquet() {
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file));
    auto properties = parquet::default_arrow_reader_properties();
    properties.set_batch_size(kRowsOfBatch);
    properties.set_use_threads(false);
    parquet_file = value_of(
        builder.memory_pool(arrow::default_memory_pool())->properties(properties)->Build());
    batches = value_of(parquet_file->GetRecordBatchReader());
  }

  void open_arrow() {
    const auto head = value_of(file->ReadAt(0, 6));
    if (head->ToString() == "ARROW1") {
      batches =
          std::make_shared<FileBatches>(value_of(arrow::ipc::RecordBatchFileReader::Open(file)));
    } else {
      batches = value_of(arrow::ipc::RecordBatchStreamReader::Open(
          std::static_pointer_cast<arrow::io::InputStream>(file)));
    }
  }

  void write_row() {
    text += '{';
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += ',';
      mgpu::columnar::write_text(batch->schema()->field(columns[i])->name(), text);
      text += ':';
      mgpu::columnar::write_json(*batch->column(columns[i]), row, text);
    }
    text += "}\n";
  }
};

namespace {

MgpuColumnarReader* open_file(const char* path, bool is_parquet, MgpuColumnarError* error) {
  try {
    return new MgpuColumnarReader(path, is_parquet);
  } catch (const std::exception& e) {
    set_error(error, e);
    return nullptr;
  }
}

int next_rows(MgpuColumnarReader* reader, MgpuColumnarRows* rows, MgpuColumnarError* error) {
  try {
    if (!reader->next_text()) return 0;
    *rows = {reader->text.data(), reader->text.size()};
    return 1;
  } catch (const std::exception& e) {
    set_error(error, e);
    return -1;
  }
}

const char* skipped_columns(const MgpuColumnarReader* reader) {
  return reader->skipped.c_str();
}

void close_file(MgpuColumnarReader* reader) {
  delete reader;
}

}  // namespace

const MgpuColumnarPlugin* mgpu_columnar_plugin() {
  static const MgpuColumnarPlugin plugin{
      .open = open_file, .next = next_rows, .skipped = skipped_columns, .close = close_file};
  return &plugin;
}
