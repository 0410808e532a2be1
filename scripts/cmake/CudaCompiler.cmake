# Sets `result` to the nvcc of this major version of CUDA, or to nothing: that of the packages beside
# torch, else the first one on PATH or in CUDA_PATH. A machine may have several, such as the system's
# in /usr/bin. `result`_OTHERS lists the nvcc of other versions, such as "13.0 (/usr/local/cuda/bin/nvcc)".
function(mgpu_find_nvcc result major site)
  set(${result} "" PARENT_SCOPE)
  set(others "")
  string(REPLACE ":" ";" folders "$ENV{PATH}")
  list(TRANSFORM folders APPEND /nvcc)
  list(PREPEND folders ${site}/nvidia/cu${major}/bin/nvcc)
  list(APPEND folders "$ENV{CUDA_PATH}/bin/nvcc")
  list(REMOVE_DUPLICATES folders)
  foreach(nvcc IN LISTS folders)
    if(NOT EXISTS ${nvcc})
      continue()
    endif()
    execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR NOT version MATCHES "release ([0-9]+)(\\.[0-9]+)")
      continue()
    endif()
    if(CMAKE_MATCH_1 EQUAL major)
      set(${result} ${nvcc} PARENT_SCOPE)
      return()
    endif()
    list(APPEND others "${CMAKE_MATCH_1}${CMAKE_MATCH_2} (${nvcc})")
  endforeach()
  list(JOIN others ", " others)
  set(${result}_OTHERS "${others}" PARENT_SCOPE)
endfunction()

# Sets `result` to one line on why the build has no kernels. `others` is what mgpu_find_nvcc found instead.
function(mgpu_explain_no_nvcc result major torch others)
  set(found "")
  if(others)
    set(found "; found ${others}")
  endif()
  set(${result} "no nvcc ${major}.x on PATH, which torch ${torch} needs${found}: GPUs run without our \
kernels, which is slower; put nvcc ${major}.x on PATH and build again" PARENT_SCOPE)
endfunction()

# Sets `result` to nothing, or to one line on why a compiler that was chosen with CUDACXX or
# CMAKE_CUDA_COMPILER cannot be used: the kernels call the CUDA runtime of torch.
function(mgpu_explain_unfit_compiler result compiler version major torch)
  set(${result} "" PARENT_SCOPE)
  if(NOT version MATCHES "^${major}\\.")
    set(${result} "the CUDA compiler ${compiler} has version ${version}, and torch ${torch} needs nvcc \
${major}.x; change CUDACXX or CMAKE_CUDA_COMPILER, and use another build folder" PARENT_SCOPE)
  endif()
endfunction()
