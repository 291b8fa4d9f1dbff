# Per-CPU areas and maps.
set(RUNTIME_DATA cpu.c percpu.c percpu_ops.c map.c map_array.c map_batch.c map_pool.c map_hash.c map_lru.c map_of_maps.c map_perf.c map_prog.c map_redirect.c map_lpm.c)
