# Makes the LibTorch of the PyPI wheel the imported target mgpu_torch. find_package(Torch) would
# require nvcc and set global flags. LIBTORCH_ROOT is the wheel's torch folder: of the command line,
# of the environment (a build folder remembers it), or of the Python that scripts/torch_python.sh
# finds.
if(NOT LIBTORCH_ROOT)
  if(DEFINED ENV{LIBTORCH_ROOT})
    set(MGPU_REMEMBERED_TORCH "$ENV{LIBTORCH_ROOT}" CACHE INTERNAL "LIBTORCH_ROOT in the environment")
  endif()
  if(EXISTS "${MGPU_REMEMBERED_TORCH}/include/ATen/ATen.h" OR DEFINED ENV{LIBTORCH_ROOT})
    set(LIBTORCH_ROOT "${MGPU_REMEMBERED_TORCH}")
  endif()
endif()
if(NOT LIBTORCH_ROOT)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/torch_python.sh
    OUTPUT_VARIABLE torch_python OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(torch_python)
    execute_process(COMMAND ${torch_python} -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      WORKING_DIRECTORY / OUTPUT_VARIABLE LIBTORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endif()
if(NOT EXISTS "${LIBTORCH_ROOT}/include/ATen/ATen.h")
  message(FATAL_ERROR "mgpu-train needs LibTorch: run scripts/setup.sh --torch, or set "
    "-DLIBTORCH_ROOT=<site-packages>/torch, or build only mgpu-run with -DMGPU_RUNTIME=OFF")
endif()
message(STATUS "LibTorch: ${LIBTORCH_ROOT}")
get_filename_component(TORCH_SITE ${LIBTORCH_ROOT} DIRECTORY)

# CUDA's packages are one folder in wheels for CUDA 13 (nvidia/cu13), and before that one each
# (nvidia/cuda_runtime, nvidia/cublas and so on).
file(STRINGS ${LIBTORCH_ROOT}/version.py torch_cuda REGEX "^cuda")
if(NOT torch_cuda MATCHES "'([0-9]+)\\.[0-9]+'")
  message(FATAL_ERROR "mgpu-train needs a torch with CUDA, as PyPI has it; ${LIBTORCH_ROOT} has none")
endif()
set(TORCH_CUDA_MAJOR ${CMAKE_MATCH_1})
file(STRINGS ${LIBTORCH_ROOT}/version.py torch_version REGEX "^__version__ = ")
string(REGEX REPLACE ".*'(.+)'.*" "\\1" TORCH_VERSION "${torch_version}")
file(GLOB torch_cudart ${TORCH_SITE}/nvidia/*/lib/libcudart.so.${TORCH_CUDA_MAJOR})
if(NOT torch_cudart)
  message(FATAL_ERROR "mgpu-train needs the CUDA packages that pip installs with torch: there is no "
    "${TORCH_SITE}/nvidia/*/lib/libcudart.so.${TORCH_CUDA_MAJOR}")
endif()
get_filename_component(torch_cudart_lib ${torch_cudart} DIRECTORY)
get_filename_component(torch_cudart_root ${torch_cudart_lib} DIRECTORY)
file(GLOB torch_cuda_libs LIST_DIRECTORIES true ${TORCH_SITE}/nvidia/*/lib)
list(JOIN torch_cuda_libs ":" torch_cuda_libs)
set(torch_cuda_includes ${TORCH_SITE}/nvidia/nccl/include ${torch_cudart_root}/include)
if(torch_cudart_root MATCHES "/cuda_runtime$")
  file(GLOB torch_cuda_includes ${TORCH_SITE}/nvidia/*/include)
endif()
find_path(TORCH_NVTX_INCLUDE nvtx3/nvToolsExt.h NO_CACHE NO_DEFAULT_PATH
  PATHS ${torch_cuda_includes})

find_path(TORCH_CUDNN_INCLUDE cudnn.h NO_CACHE NO_DEFAULT_PATH
  PATHS ${TORCH_SITE}/nvidia/cudnn/include)
find_path(TORCH_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h NO_CACHE NO_DEFAULT_PATH
  PATHS ${TORCH_SITE}/include)
# Another package may have brought a version that the code was not written for.
if(TORCH_CUDNN_FRONTEND_INCLUDE)
  file(STRINGS ${TORCH_CUDNN_FRONTEND_INCLUDE}/cudnn_frontend_version.h frontend_version
    REGEX "^#define CUDNN_FRONTEND_(MAJOR|MINOR)_VERSION ")
  list(TRANSFORM frontend_version REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN frontend_version "." frontend_version)
  if(frontend_version VERSION_LESS 1.18 OR frontend_version VERSION_GREATER_EQUAL 2)
    message(STATUS "cudnn-frontend ${frontend_version} is not used: 1.18 is needed")
    set(TORCH_CUDNN_FRONTEND_INCLUDE "TORCH_CUDNN_FRONTEND_INCLUDE-NOTFOUND")
  endif()
endif()

# nccl.h must be the one that LibTorch was built with.
file(STRINGS ${TORCH_SITE}/nvidia/nccl/include/nccl.h nccl_version REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM nccl_version REPLACE ".* ([0-9]+)$" "\\1")
list(JOIN nccl_version "." nccl_version)
file(GLOB torch_metadata ${TORCH_SITE}/torch-*.dist-info/METADATA)
if(torch_metadata)
  file(STRINGS ${torch_metadata} wanted_nccl REGEX "^Requires-Dist: nvidia-nccl-cu")
  if(NOT wanted_nccl MATCHES "==${nccl_version}([^0-9.]|$)")
    message(FATAL_ERROR "the NCCL in ${TORCH_SITE}/nvidia/nccl is ${nccl_version}, which is not the one "
      "that this torch was built with (${wanted_nccl}); run pip install --force-reinstall torch")
  endif()
endif()

find_path(GLOO_INCLUDE gloo/context.h REQUIRED)  # headers only: the code is in libtorch_cpu
add_library(mgpu_torch INTERFACE)
target_include_directories(mgpu_torch SYSTEM INTERFACE
  ${LIBTORCH_ROOT}/include ${LIBTORCH_ROOT}/include/torch/csrc/api/include ${torch_cuda_includes}
  ${GLOO_INCLUDE})
target_compile_definitions(mgpu_torch INTERFACE
  USE_DISTRIBUTED USE_C10D_GLOO USE_C10D_NCCL AT_PER_OPERATOR_HEADERS)
set(torch_lib ${LIBTORCH_ROOT}/lib)
# No symbol of libtorch_cuda is used by name, but it must be loaded: that registers the GPU kernels.
target_link_options(mgpu_torch INTERFACE -Wl,--no-as-needed
  ${torch_lib}/libtorch_cuda.so ${torch_lib}/libtorch_cpu.so
  ${torch_lib}/libc10_cuda.so ${torch_lib}/libc10.so
  ${torch_cudart} -Wl,--as-needed
  -Wl,-rpath,${torch_lib}:${torch_cudart_lib}:${TORCH_SITE}/nvidia/nccl/lib
  -Wl,-rpath-link,${torch_lib}:${torch_cuda_libs})
set(LibTorch_FOUND TRUE)

# The wheel's headers include a newer fmt, and files that include those headers use it. It has its
# own namespace. Its code is compiled once here, as rendezvous does with the system's fmt.
add_library(mgpu_torch_fmt STATIC ${CMAKE_SOURCE_DIR}/rendezvous/base/fmt.cpp)
target_include_directories(mgpu_torch_fmt SYSTEM PRIVATE ${LIBTORCH_ROOT}/include)
target_link_libraries(mgpu_torch_fmt PRIVATE mgpu_flags)
target_link_libraries(mgpu_torch INTERFACE mgpu_torch_fmt)

# NCCL, which libtorch_cuda depends on, for code that calls it directly.
add_library(mgpu_nccl INTERFACE)
target_link_libraries(mgpu_nccl INTERFACE ${TORCH_SITE}/nvidia/nccl/lib/libnccl.so.2)
