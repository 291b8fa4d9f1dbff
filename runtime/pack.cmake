set(RUNTIME_PACK
  arena.c arena_range.c backing.c machine.c flush.c
  pack.c pack_free.c pack_query.c pack_room.c pack_space.c pack_dup.c pack_fork.c pack_names.c
  grace.c)
