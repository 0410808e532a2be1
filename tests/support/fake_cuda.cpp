// A CUDA runtime with fake GPUs, preloaded into a program that was linked with the real one: tests
// on machines without a GPU see on which GPU the program works. Device memory is host memory, and
// kernels, matrix products do nothing, so results mean nothing.
//
//   FAKE_CUDA_GPUS  the number of GPUs
//   FAKE_CUDA_CAPABILITY  their compute capability times ten; 90 if it is not set
//   FAKE_CUDA_DRIVER  the CUDA version of a driver that is too old, such as 12040
//   FAKE_NCCL_FAILS  set: no communicator can be made
//   FAKE_CUDA_LOG   for every call that works on the calling thread's current GPU, and so creates a
//                   context there if there is none, a line is added to the file
//                   $FAKE_CUDA_LOG.$RANK: thread, GPU, call, and where it matters stream and event
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

thread_local int current = 0;
std::array<std::atomic<bool>, 64> has_context;

int gpus() {
  const char* number = std::getenv("FAKE_CUDA_GPUS");
  return number ? std::atoi(number) : 0;
}

int number_in(const char* variable, int other) {
  const char* number = std::getenv(variable);
  return number ? std::atoi(number) : other;
}

int capability() {
  return number_in("FAKE_CUDA_CAPABILITY", 90);
}

int open_log() {
  const char *stem = std::getenv("FAKE_CUDA_LOG"), *rank = std::getenv("RANK");
  if (!stem) return -1;
  const auto path = std::string(stem) + "." + (rank ? rank : "alone");
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

cudaError_t used(const char* call, const void* stream = nullptr, const void* event = nullptr) {
  has_context[static_cast<std::size_t>(current)] = true;
  static const int log = open_log();
  char line[128];
  const int length = std::snprintf(line, sizeof line, "%d %d %s %p %p\n",
                                   static_cast<int>(::gettid()), current, call, stream, event);
  if (log >= 0 && ::write(log, line, static_cast<std::size_t>(length)) < 0) std::abort();
  return cudaSuccess;
}

template <class T>
void set(T* place, T value) {
  if (place) *place = value;
}

template <class Handle>
void make(Handle* handle) {
  *handle = static_cast<Handle>(std::calloc(1, 64));
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

int no_op() {
  return 0;
}

}  // namespace

#define USED used(__func__)

extern "C" {

// --- What needs no context

cudaError_t cudaGetDeviceCount(int* count) {
  if (std::getenv("FAKE_CUDA_DRIVER")) return cudaErrorInsufficientDriver;
  *count = gpus();
  return gpus() > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = number_in("FAKE_CUDA_DRIVER", CUDART_VERSION);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "Fake GPU %d", device);
  properties->major = capability() / 10;
  properties->minor = capability() % 10;
  properties->totalGlobalMem = std::size_t{80} << 30;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  for (int i = 0; i < 3; ++i) properties->maxGridSize[i] = 65535, properties->maxThreadsDim[i] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->pciBusID = device + 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability() / 10 : 1024;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  std::snprintf(id, static_cast<std::size_t>(size), "00000000:%02d:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
// Functions of the driver that LibTorch looks up by name.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(no_op);
  set(result, cudaDriverEntryPointSuccess);
  return cudaSuccess;
}
#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char*, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(no_op);
  set(result, cudaDriverEntryPointSuccess);
  return cudaSuccess;
}
#endif
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData** edges,
#endif
                                     std::size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  set(id, 0ULL);
  set(graph, cudaGraph_t{});
  set(dependencies, static_cast<const cudaGraphNode_t*>(nullptr));
#if CUDART_VERSION >= 13000
  set(edges, static_cast<const cudaGraphEdgeData*>(nullptr));
#endif
  set(count, std::size_t{0});
  return cudaSuccess;
}

// The driver: LibTorch finds it because this library is also called libcuda.so.1.
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  set(flags, 0U);
  *active = has_context[static_cast<std::size_t>(device)];
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = &has_context[static_cast<std::size_t>(current)];
  return 0;
}

// --- What names its stream or event, and with it the GPU. None of it creates a context.

cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

// --- What works on the current GPU of the thread

cudaError_t cudaSetDevice(int device) {
  current = device;
  return USED;  // creates the context at once since CUDA 12
}
cudaError_t cudaDeviceSynchronize() {
  return USED;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return USED;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  set(least, 0);
  set(greatest, -5);
  return USED;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = std::size_t{79} << 30;
  *total = std::size_t{80} << 30;
  return USED;
}
// Kernels write nothing, so what a program reads back is this: a large integer, or a small positive
// floating-point number.
cudaError_t cudaMalloc(void** memory, std::size_t size) {
  *memory = std::malloc(size);
  if (!*memory) return cudaErrorMemoryAllocation;
  std::memset(*memory, 1, size);
  return USED;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  *memory = std::calloc(1, size);
  return USED;
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  return USED;
}
cudaError_t cudaHostUnregister(void*) {
  return USED;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
  std::memmove(to, from, size);
  return USED;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t) {
  std::memmove(to, from, size);
  return USED;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t size) {
  std::memset(memory, value, size);
  return USED;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size, cudaStream_t) {
  std::memset(memory, value, size);
  return USED;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  make(stream);
  return USED;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return USED;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return USED;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return used(__func__, stream, event);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  make(event);
  return USED;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  make(event);
  return USED;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return used(__func__, stream, event);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return used(__func__, stream, event);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return USED;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return USED;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = 1;
  return USED;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return used(__func__, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  return used(__func__, config->stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return used(__func__, stream);
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
  set(kernel, cudaKernel_t{});
  return cudaSuccess;
}

// --- cuBLAS

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  make(handle);
  USED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const float*, const float*, int, const float*, int, const float*,
                              float*, int) {
  USED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                         int, int, const float*, const float*, int, long long,
                                         const float*, int, long long, const float*, float*, int,
                                         long long, int) {
  USED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                            const void*, const void*, cudaDataType, int, const void*, cudaDataType,
                            int, const void*, void*, cudaDataType, int, cublasComputeType_t,
                            cublasGemmAlgo_t) {
  USED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                          int, int, const void*, const void*, cudaDataType, int,
                                          long long, const void*, cudaDataType, int, long long,
                                          const void*, void*, cudaDataType, int, long long, int,
                                          cublasComputeType_t, cublasGemmAlgo_t) {
  USED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  std::memset(results, 0, sizeof *results);
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t,
                              const void*, const void*, cublasLtMatrixLayout_t, void*,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t) {
  USED;
  return CUBLAS_STATUS_SUCCESS;
}

// --- NCCL

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int world, ncclUniqueId, int, ncclConfig_t*) {
  if (std::getenv("FAKE_NCCL_FAILS")) return ncclSystemError;
  make(comm);
  *reinterpret_cast<int*>(*comm) = world;
  USED;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return ncclSuccess;
}
// Sums are zeros, since kernels were to write what they are made of: no loss, no request to stop.
// What ranks gather was often copied from the host: all have this rank's. A broadcast leaves its
// sender's memory as it is; the others receive zeros, or where a text is announced
// (runtime/comm/text.cpp) that it is empty.
ncclResult_t ncclAllReduce(const void*, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t, cudaStream_t) {
  std::memset(to, 0, count * size_of(type));
  USED;
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void*, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t, cudaStream_t) {
  std::memset(to, 0, count * size_of(type));
  USED;
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
  const auto size = count * size_of(type);
  const std::string own(static_cast<const char*>(from), size);  // the two may overlap
  for (int rank = 0; rank < *reinterpret_cast<int*>(comm); ++rank)
    std::memcpy(static_cast<char*>(to) + static_cast<std::size_t>(rank) * size, own.data(), size);
  USED;
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t, cudaStream_t) {
  constexpr std::array<std::uint64_t, 3> kEmptyText{0, ~std::uint64_t{0}, 14695981039346656037ULL};
  const auto size = count * size_of(type);
  if (number_in("RANK", 0) == root)
    std::memmove(to, from, size);
  else if (type == ncclInt64 && count == kEmptyText.size())
    std::memcpy(to, kEmptyText.data(), size);
  else
    std::memset(to, 0, size);
  USED;
  return ncclSuccess;
}

}  // extern "C"
