#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/telemetry/output_file.hpp"

namespace mgpu::telemetry {

// CRC-32C (Castagnoli), and its masked form in TFRecord files.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

// One record of a TFRecord file: the length (8 bytes, little-endian), the masked CRC of the length,
// the bytes, the masked CRC of the bytes.
std::string tf_record(std::string_view bytes);

// TensorBoard's Event messages in protobuf's encoding. Times are seconds since 1970.
std::string version_event(double time);
std::string scalar_event(double time, std::int64_t step, std::string_view tag, double value);
std::string text_event(double time, std::int64_t step, std::string_view tag, std::string_view text);
// Makes TensorBoard discard earlier events in the folder from `step` on.
std::string restart_event(double time, std::int64_t step);

// "events.out.tfevents.<time>.<host>.<pid>.0": TensorBoard searches for such names and sorts by
// them.
std::string event_file_name(double time);

// An event file that TensorBoard can read while it grows. Never throws.
class EventFile {
 public:
  EventFile() = default;
  EventFile(const std::string& folder, double time, const ErrorCallback& on_error);

  void add(std::string_view event) { file_.append(tf_record(event)); }
  const std::string& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace mgpu::telemetry
