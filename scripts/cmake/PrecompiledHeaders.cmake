# Precompiled headers of packages and of the standard library. Every file still includes what it
# uses: -DMGPU_PCH=OFF must build too, and clang-tidy sees the files without these.
#
#   mgpu_precompile(TARGET base|asio|torch|test|torch_test|fuzz)
#
# The sets are compiled once each and shared by all targets with the same flags.
option(MGPU_PCH "precompile the headers of packages" ON)

set(mgpu_std_headers <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <cstring> <deque>
  <filesystem> <fstream> <functional> <limits> <map> <memory> <numeric> <optional> <set> <span>
  <sstream> <stdexcept> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
# Without nlohmann/json.hpp: with it every file takes 0.7 s to begin, and few use it.
set(mgpu_headers_base ${mgpu_std_headers} <fmt/format.h> <fmt/ranges.h>)
set(mgpu_headers_asio ${mgpu_headers_base} <boost/asio/io_context.hpp> <boost/asio/ip/tcp.hpp>
  <boost/asio/posix/stream_descriptor.hpp> <boost/asio/steady_timer.hpp> <boost/asio/write.hpp>)
set(mgpu_headers_torch ${mgpu_headers_base} <ATen/core/Tensor.h> <ATen/ops/empty.h>
  <ATen/ops/zeros.h> <ATen/ops/from_blob.h> <ATen/Context.h> <c10/core/DeviceGuard.h>)
set(mgpu_headers_test ${mgpu_headers_base} "${CMAKE_SOURCE_DIR}/tests/support/catch.hpp")
# Without Catch2: c10 defines CHECK too, and the last definition wins, which must be that of Catch2.
set(mgpu_headers_torch_test ${mgpu_headers_torch})
set(mgpu_headers_fuzz ${mgpu_headers_base})

# Defines the set `kind` on its first use: a target with these libraries and no other flags.
function(mgpu_define_precompiled kind)
  file(WRITE ${CMAKE_BINARY_DIR}/precompiled/${kind}.cpp "")
  add_library(mgpu_pch_${kind} OBJECT ${CMAKE_BINARY_DIR}/precompiled/${kind}.cpp)
  target_link_libraries(mgpu_pch_${kind} PRIVATE ${ARGN})
  target_precompile_headers(mgpu_pch_${kind} PRIVATE ${mgpu_headers_${kind}})
endfunction()

function(mgpu_precompile target kind)
  if(NOT MGPU_PCH)
    return()
  endif()
  if(NOT TARGET mgpu_pch_${kind})
    if(kind STREQUAL "fuzz")
      mgpu_define_precompiled(fuzz mgpu_fuzz_flags)
    elseif(kind STREQUAL "torch")
      mgpu_define_precompiled(torch mgpu_flags mgpu_fmt mgpu_torch)
    elseif(kind STREQUAL "asio")
      mgpu_define_precompiled(asio mgpu_flags mgpu_fmt mgpu_boost)
    elseif(kind STREQUAL "test")
      mgpu_define_precompiled(test test_main mgpu_fmt)
    elseif(kind STREQUAL "torch_test")
      mgpu_define_precompiled(torch_test test_main mgpu_fmt mgpu_torch)
    else()
      mgpu_define_precompiled(base mgpu_flags mgpu_fmt)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM mgpu_pch_${kind})
endfunction()
