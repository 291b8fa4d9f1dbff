# Packs, arenas, reclamation.
foreach(name pack_space pack_alloc pack_arena pack_backing pack_fork grace)
  shunt_add_criterion(unit_${name} LABELS unit SOURCES unit/${name}.c LIBS shunt_static TSAN)
endforeach()
shunt_add_criterion(stress_pack_storm LABELS stress SOURCES stress/pack_storm.c LIBS shunt_static TSAN)
