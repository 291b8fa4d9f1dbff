# Flags that every room is built with. An interface target, so that nothing of it leaks to users of the installed package.
add_library(shunt_options INTERFACE)
target_include_directories(shunt_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(shunt_options INTERFACE _GNU_SOURCE)
target_compile_options(shunt_options INTERFACE
  -Wall -Wextra -Wno-unused-parameter -fno-strict-aliasing
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wvla>
  $<$<BOOL:${SHUNT_WERROR}>:-Werror>)
if(SHUNT_SANITIZE)
  # Everywhere, tests included: a sanitizer must see all of the process.
  add_compile_options(-fsanitize=${SHUNT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHUNT_SANITIZE})
endif()
