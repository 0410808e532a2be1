# The packages other than LibTorch, as imported targets. All of them are Debian packages.
find_path(BOOST_INCLUDE_DIR boost/asio.hpp REQUIRED)
add_library(mgpu_boost INTERFACE)
target_include_directories(mgpu_boost SYSTEM INTERFACE ${BOOST_INCLUDE_DIR})
target_compile_definitions(mgpu_boost INTERFACE
  BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_COROUTINE BOOST_ERROR_CODE_HEADER_ONLY)

find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
# Only fmt's headers, without FMT_HEADER_ONLY; rendezvous/base/fmt.cpp compiles its code.
add_library(mgpu_fmt INTERFACE)
target_include_directories(mgpu_fmt SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)

# The static library, so that mgpu-run is one file.
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
find_library(YAML_CPP_STATIC libyaml-cpp.a REQUIRED)
add_library(mgpu_yaml STATIC IMPORTED)
set_target_properties(mgpu_yaml PROPERTIES IMPORTED_LOCATION ${YAML_CPP_STATIC})
target_include_directories(mgpu_yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE})

if(MGPU_RUNTIME)
  find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
  find_library(PCRE2_LIBRARY NAMES libpcre2-8.a pcre2-8 REQUIRED)
  add_library(mgpu_pcre2 INTERFACE)
  target_include_directories(mgpu_pcre2 SYSTEM INTERFACE ${PCRE2_INCLUDE})
  target_link_libraries(mgpu_pcre2 INTERFACE ${PCRE2_LIBRARY})
  target_compile_definitions(mgpu_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8)

  find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
  find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc REQUIRED)
  add_library(mgpu_utf8proc INTERFACE)
  target_include_directories(mgpu_utf8proc SYSTEM INTERFACE ${UTF8PROC_INCLUDE})
  target_link_libraries(mgpu_utf8proc INTERFACE ${UTF8PROC_LIBRARY})

  find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
  find_library(XXHASH_LIBRARY NAMES libxxhash.a xxhash REQUIRED)
  add_library(mgpu_xxhash INTERFACE)
  target_include_directories(mgpu_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})
  target_link_libraries(mgpu_xxhash INTERFACE ${XXHASH_LIBRARY})

  find_path(ZLIB_INCLUDE zlib.h REQUIRED)
  find_library(ZLIB_STATIC libz.a REQUIRED)
  add_library(mgpu_zlib INTERFACE)
  target_include_directories(mgpu_zlib SYSTEM INTERFACE ${ZLIB_INCLUDE})
  target_link_libraries(mgpu_zlib INTERFACE ${ZLIB_STATIC})

  find_path(ZSTD_INCLUDE zstd.h REQUIRED)
  find_library(ZSTD_STATIC libzstd.a REQUIRED)
  add_library(mgpu_zstd INTERFACE)
  target_include_directories(mgpu_zstd SYSTEM INTERFACE ${ZSTD_INCLUDE})
  target_link_libraries(mgpu_zstd INTERFACE ${ZSTD_STATIC})

  find_path(OPENSSL_INCLUDE openssl/evp.h REQUIRED)
  find_library(CRYPTO_STATIC libcrypto.a REQUIRED)
  add_library(mgpu_crypto INTERFACE)
  target_include_directories(mgpu_crypto SYSTEM INTERFACE ${OPENSSL_INCLUDE})
  target_link_libraries(mgpu_crypto INTERFACE ${CRYPTO_STATIC} ${CMAKE_DL_LIBS})
endif()
