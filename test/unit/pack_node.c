/* SPDX-License-Identifier: MIT */
/* Machines with several NUMA nodes: memory is wanted where the allocating thread runs. Played by the table of system calls. */
#include "test/unit/pack_check.h"
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/unit/pack_inject.h"
#include "test/unit/pack_test.h"

static struct shunt_arena *make_arena(uint64_t nodes, const struct shunt_arena_options *options)
{
	struct shunt_arena *arena = NULL;

	inject_begin();
	inject.nodes = nodes;
	cr_assert_eq(shunt_arena_create(options, &arena), 0, "%s", shunt_error());
	return arena;
}

static const struct shunt_arena_options small = { .size = 16 << 20, .rest = SHUNT_REST_NONE };
#define NODES_0_AND_2 5

static struct shunt_pack_stats stats_of(struct shunt_arena *arena)
{
	struct shunt_pack_stats stats;

	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	return stats;
}

static bool same_pack(const struct shunt_block *a, const struct shunt_block *b)
{
	return (uintptr_t)a->rx / SHUNT_PACK_SIZE == (uintptr_t)b->rx / SHUNT_PACK_SIZE;
}

Test(pack_node, each_thread_gets_blocks_from_packs_of_its_node)
{
	struct shunt_arena *arena = make_arena(NODES_0_AND_2, &small);
	struct shunt_block on_0[2], on_2[2], rodata, large;
	struct shunt_pack_stats stats;

	for (int i = 0; i < 2; i++) {
		inject.here = 0;
		cr_assert(make_tiny(arena, 1, &on_0[i]), "%s", shunt_error());
		inject.here = 2;
		cr_assert(make_tiny(arena, 2, &on_2[i]), "%s", shunt_error());
	}
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 100, 0, &rodata), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE + 1, 0, &large), 0);
	cr_assert(same_pack(&on_0[0], &on_0[1]));
	cr_assert(same_pack(&on_2[0], &on_2[1]));
	cr_assert_not(same_pack(&on_0[0], &on_2[0]));
	cr_assert_eq(shunt_pack_node(&on_0[0]), 0);
	cr_assert_eq(shunt_pack_node(&on_2[1]), 2);
	cr_assert_eq(shunt_pack_node(&rodata), 2);
	cr_assert_eq(shunt_pack_node(&large), 2);
	cr_assert_eq(inject.preferred[0], 1);
	cr_assert_eq(inject.preferred[2], 3);
	cr_assert_eq(inject.preferred[1], 0);
	stats = stats_of(arena);
	cr_assert_eq(stats.nr_nodes, 2);
	cr_assert_eq(stats.bytes_by_node[0], SHUNT_PACK_SIZE);
	cr_assert_eq(stats.bytes_by_node[2], 4 * SHUNT_PACK_SIZE);
	cr_assert_eq(stats.bytes_by_node[1], 0);
	cr_assert_eq(call(on_0[1].rx), 1);
	cr_assert_eq(call(on_2[1].rx), 2);
	cr_assert_eq(shunt_pack_free(&on_2[0]), 0);
	cr_assert_eq(shunt_pack_node(&on_2[0]), -EINVAL);
}

Test(pack_node, a_full_arena_gives_room_of_another_node)
{
	struct shunt_arena_options options = { .size = 4 << 20, .rest = SHUNT_REST_NONE };
	struct shunt_arena *arena = make_arena(NODES_0_AND_2, &options);
	struct shunt_block anchor, block, whole, found;

	inject.here = 0;
	cr_assert(make_tiny(arena, 1, &anchor));
	inject.here = 2;
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &whole), 0);
	cr_assert_eq(shunt_pack_node(&whole), 2);
	/* Node 2 is full; node 0's pack has an open run, and room behind it. */
	for (int i = 0; i < 3; i++) {
		cr_assert(make_tiny(arena, 7, &block), "%s", shunt_error());
		cr_assert(same_pack(&block, &anchor));
		cr_assert_eq(shunt_pack_node(&block), 0);
		cr_assert_eq(call(block.rx), 7);
		/* What is left of the run that it was cut from is nobody's. */
		cr_assert_eq(shunt_pack_find((char *)block.rx + block.len, &found, NULL), -ENOENT, "%p", found.rx);
	}
	inject.here = 0;
	cr_assert(make_tiny(arena, 9, &block), "%s", shunt_error());
	cr_assert_eq(call(block.rx), 9);
	cr_assert_eq(call(anchor.rx), 1);
}

Test(pack_node, each_node_keeps_an_empty_pack_in_reserve)
{
	struct shunt_arena *arena = make_arena(NODES_0_AND_2, &small);
	struct shunt_block blocks[2][2];

	for (int node = 0; node < 2; node++)
		for (int i = 0; i < 2; i++) {
			inject.here = 2 * node;
			cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &blocks[node][i]), 0);
		}
	for (int node = 0; node < 2; node++)
		for (int i = 0; i < 2; i++)
			cr_assert_eq(shunt_pack_free(&blocks[node][i]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(stats_of(arena).bytes_by_node[0], SHUNT_PACK_SIZE);
	cr_assert_eq(stats_of(arena).bytes_by_node[2], SHUNT_PACK_SIZE);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

Test(pack_node, a_system_that_does_not_say_or_has_one_node_is_not_asked_again)
{
	static const uint64_t masks[] = { 1, 4 };
	struct shunt_block block;

	for (int i = 0; i < 2; i++) {
		struct shunt_arena *arena = make_arena(masks[i], &small);

		shunt_sys = real;
		inject_begin();
		inject.fail_kinds[0] = NODE_HERE;
		inject.fail_kinds[1] = PREFER_NODE;
		cr_assert(make_tiny(arena, 3, &block), "%s", shunt_error());
		cr_assert_eq(shunt_pack_node(&block), i ? 2 : 0);
		cr_assert_eq(stats_of(arena).nr_nodes, 1);
		shunt_sys = real;
	}
	inject.fail_kinds[2] = NODES_ALLOWED;
	cr_assert(make_tiny(make_arena(3, &small), 3, &block), "%s", shunt_error());
	cr_assert_eq(shunt_pack_node(&block), 0);
}

Test(pack_node, where_the_node_may_not_be_named_blocks_are_made_all_the_same)
{
	struct shunt_arena *arena = make_arena(3, &small);
	struct shunt_block block;

	inject.fail_kinds[0] = PREFER_NODE;
	inject.here = 1;
	cr_assert(make_tiny(arena, 3, &block), "%s", shunt_error());
	cr_assert_eq(shunt_pack_node(&block), 1);
	/* A thread on a node without memory. */
	inject.here = 9;
	cr_assert(make_tiny(arena, 4, &block), "%s", shunt_error());
	cr_assert_eq(shunt_pack_node(&block), 0);
}

Test(pack_node, a_forks_child_wants_its_copies_on_the_same_nodes)
{
	struct shunt_arena *arena = make_arena(NODES_0_AND_2, &small);
	struct shunt_block block;
	int status = -1;
	pid_t pid;

	inject.here = 2;
	cr_assert(make_tiny(arena, 3, &block), "%s", shunt_error());
	pid = fork();
	if (!pid)
		_exit(inject.preferred[2] == 2 && shunt_pack_node(&block) == 2 && call(block.rx) == 3 ? 0 : 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
}

/* What mbind does is the kernel's; that it takes our arguments can be seen on any machine. */
Test(pack_node, the_real_calls_are_understood)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	void *view = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t mask = 0;

	if (shunt_sys.nodes_allowed(&mask) != 0)
		cr_skip_test("this system has no NUMA policies");
	cr_assert_neq(mask, 0);
	cr_assert(mask >> shunt_sys.node_here() & 1);
	cr_assert_eq(shunt_sys.prefer_node(view, page_size, __builtin_ctzll(mask)), 0, "%s", strerror(errno));
	*(volatile char *)view = 1;
}
