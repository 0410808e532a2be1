#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/telemetry/output_file.hpp"

namespace mgpu::telemetry {

// CRC-32C (Castagnoli), and as TFRecord files mask it.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

// One record of a TFRecord file: length (8 bytes, little-endian), masked CRC of these, the bytes,
// masked CRC of those.
std::string tf_record(std::string_view bytes);

// TensorBoard's Event messages, as protobuf writes them. Times are seconds since 1970.
std::string version_event(double time);
std::string scalar_event(double time, std::int64_t step, std::string_view tag, double value);
std::string text_event(double time, std::int64_t step, std::string_view tag, std::string_view text);
// Of the events before this one in the folder those from `step` on no longer count.
std::string restart_event(double time, std::int64_t step);

// "events.out.tfevents.<time>.<host>.<pid>.0", which TensorBoard looks for and sorts by.
std::string event_file_name(double time);

// A file that TensorBoard opens while it grows. Never throws.
class EventFile {
 public:
  EventFile() = default;
  EventFile(const std::string& folder, double time, const Complain& complain);

  void add(std::string_view event) { file_.append(tf_record(event)); }
  const std::string& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace mgpu::telemetry
