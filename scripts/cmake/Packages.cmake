# The packages of the launcher's side, as imported targets. All of them are Debian packages.
find_path(BOOST_INCLUDE_DIR boost/asio.hpp REQUIRED)
add_library(mgpu_boost INTERFACE)
target_include_directories(mgpu_boost SYSTEM INTERFACE ${BOOST_INCLUDE_DIR})
target_compile_definitions(mgpu_boost INTERFACE
  BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_COROUTINE BOOST_ERROR_CODE_HEADER_ONLY)

find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
# Its headers without FMT_HEADER_ONLY; rendezvous/base/fmt.cpp is the library.
add_library(mgpu_fmt INTERFACE)
target_include_directories(mgpu_fmt SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)

# The static library, so that mgpu-run stays one file.
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
find_library(YAML_CPP_STATIC libyaml-cpp.a REQUIRED)
add_library(mgpu_yaml STATIC IMPORTED)
set_target_properties(mgpu_yaml PROPERTIES IMPORTED_LOCATION ${YAML_CPP_STATIC})
target_include_directories(mgpu_yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE})
