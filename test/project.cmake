# Tests of the project as a whole: the rooms, and an outside user of the installed package.


add_test(NAME layers COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/layers/check_layers.py ${PROJECT_SOURCE_DIR})
add_test(NAME layers_catch_a_wrong_include COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/layers/test_check_layers.py)
add_test(NAME readme_shows_the_example_that_is_built COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/readme_example.py ${PROJECT_SOURCE_DIR})
set_tests_properties(layers layers_catch_a_wrong_include readme_shows_the_example_that_is_built PROPERTIES LABELS unit)

# An outside project, built twice against an installation of this build: through find_package and through pkg-config.
if(NOT SHUNT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  foreach(way find_package pkg_config)
    add_test(NAME install_${way}
      COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/check_install.sh ${way} ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_LIST_DIR}/install
              ${CMAKE_CURRENT_BINARY_DIR}/install_${way})
    set_tests_properties(install_${way} PROPERTIES LABELS install TIMEOUT 300)
  endforeach()
endif()
