#pragma once

// PyTorch records the latest collectives of NCCL in memory (its "flight recorder"). A rank writes
// its record to a file when one of them times out, or when it finds something in its pipe.
namespace mgpu::launcher::nccl_record {

// The variables with the beginnings of the paths; a rank's number follows, for the pipe also
// ".pipe".
inline constexpr const char* kPipeVariable = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
inline constexpr const char* kFileVariable = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE";
inline constexpr const char* kNewFileVariable = "TORCH_FR_DUMP_TEMP_FILE";

// The values, in the folder for these files.
inline constexpr const char* kPipe = "/rank_";
inline constexpr const char* kFile = "/nccl_trace_rank_";

}  // namespace mgpu::launcher::nccl_record
