# Makes the LibTorch of the PyPI wheel the imported target mgpu_torch. find_package(Torch) would
# require nvcc and set global flags. LIBTORCH_ROOT is the wheel's torch folder; if it is not set, it
# is taken from the Python that scripts/torch_python.sh finds.
if(NOT LIBTORCH_ROOT)
  set(LIBTORCH_ROOT "$ENV{LIBTORCH_ROOT}")
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
  message(FATAL_ERROR "mgpu-train needs LibTorch 2.11.0: run scripts/setup.sh --torch, or set "
    "-DLIBTORCH_ROOT=<site-packages>/torch, or build only mgpu-run with -DMGPU_RUNTIME=OFF")
endif()
message(STATUS "LibTorch: ${LIBTORCH_ROOT}")
get_filename_component(TORCH_SITE ${LIBTORCH_ROOT} DIRECTORY)

find_path(GLOO_INCLUDE gloo/context.h REQUIRED)  # headers only: the code is in libtorch_cpu
add_library(mgpu_torch INTERFACE)
target_include_directories(mgpu_torch SYSTEM INTERFACE
  ${LIBTORCH_ROOT}/include ${LIBTORCH_ROOT}/include/torch/csrc/api/include ${TORCH_SITE}/nvidia/nccl/include ${TORCH_SITE}/nvidia/cu13/include
  ${GLOO_INCLUDE})
target_compile_definitions(mgpu_torch INTERFACE
  USE_DISTRIBUTED USE_C10D_GLOO USE_C10D_NCCL AT_PER_OPERATOR_HEADERS)
set(torch_lib ${LIBTORCH_ROOT}/lib)
# No symbol of libtorch_cuda is used by name, but it must be loaded: that registers the GPU kernels.
target_link_options(mgpu_torch INTERFACE -Wl,--no-as-needed
  ${torch_lib}/libtorch_cuda.so ${torch_lib}/libtorch_cpu.so
  ${torch_lib}/libc10_cuda.so ${torch_lib}/libc10.so
  ${TORCH_SITE}/nvidia/cu13/lib/libcudart.so.13 -Wl,--as-needed
  -Wl,-rpath,${torch_lib}:${TORCH_SITE}/nvidia/cu13/lib:${TORCH_SITE}/nvidia/nccl/lib
  -Wl,-rpath-link,${torch_lib}:${TORCH_SITE}/nvidia/cu13/lib:${TORCH_SITE}/nvidia/nccl/lib:${TORCH_SITE}/nvidia/cudnn/lib:${TORCH_SITE}/nvidia/cusparselt/lib:${TORCH_SITE}/nvidia/nvshmem/lib)
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
