/* SPDX-License-Identifier: MIT */
/* Tail calls: what runs, what is returned, and that a chain ends after 33 however it is built. */
#include <errno.h>
#include <string.h>
#include "bpf_run.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
#define CALL_SUB(o) INSN(BPF_JMP | BPF_CALL, 0, 1, 0, o)
/* bpf_tail_call(r6 as context, map, index) */
#define TAIL_CALL(map, index) MOV_REG(1, 6), LOAD_IMM64(2, (uintptr_t)(map)), MOV_IMM(3, index), CALL(12)

static struct shunt_map *make_programs(void)
{
	struct shunt_map_attr attr = { .type = SHUNT_MAP_PROG_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 8, .name = "programs" };
	struct shunt_map *map;

	cr_assert_eq(shunt_map_create(&attr, &map), 0, "%s", shunt_error());
	return map;
}

static const void *entry_of(struct shunt_bpf_object *object)
{
	return shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));
}

static void put(struct shunt_map *map, uint32_t index, const void *entry)
{
	cr_assert_eq(shunt_map_host_update(map, &index, &entry, 0), 0, "%s", shunt_error());
}

#define OPEN(context, ...)                                                                                                     \
	({                                                                                                                     \
		const struct bpf_insn open_insns[] = { __VA_ARGS__ };                                                          \
		bpf_run_open(open_insns, NR(open_insns), context);                                                             \
	})

static uint64_t run_plain(struct shunt_bpf_object *object, uint64_t *counter)
{
	uint64_t result;

	shunt_read_begin();
	result = ((bpf_plain_fn *)(uintptr_t)entry_of(object))(counter, sizeof(*counter));
	shunt_read_end();
	return result;
}

/* Counts its runs at *r1. */
#define COUNT() MOV_REG(6, 1), MOV_IMM(7, 1), ATOMIC(BPF_DW, BPF_ADD, 6, 7, 0)

Test(bpf_tail, a_tail_call_replaces_the_rest_of_the_program_and_an_empty_slot_does_not)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *callee = OPEN(SHUNT_BPF_CONTEXT_NONE, LOAD(BPF_DW, 0, 1, 0), ALU64_REG(BPF_ADD, 0, 2), EXIT());
	struct shunt_bpf_object *caller = OPEN(SHUNT_BPF_CONTEXT_NONE, MOV_REG(6, 1), TAIL_CALL(map, 3), MOV_IMM(0, 9), EXIT());
	uint64_t mem = 30;

	cr_expect_eq(run_plain(caller, &mem), 9u);
	put(map, 3, entry_of(callee));
	cr_expect_eq(run_plain(caller, &mem), 38u, "the callee gets the memory and its length");
	shunt_bpf_close(caller);
	shunt_bpf_close(callee);
	shunt_map_put(map);
}

Test(bpf_tail, an_index_outside_of_the_map_goes_on)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *caller = OPEN(SHUNT_BPF_CONTEXT_NONE, MOV_REG(6, 1), TAIL_CALL(map, 8), TAIL_CALL(map, -1), MOV_IMM(0, 9), EXIT());
	uint64_t mem = 0;

	cr_expect_eq(run_plain(caller, &mem), 9u);
	shunt_bpf_close(caller);
	shunt_map_put(map);
}

Test(bpf_tail, a_chain_of_a_program_with_itself_ends_after_33_calls)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *program = OPEN(SHUNT_BPF_CONTEXT_NONE, COUNT(), TAIL_CALL(map, 0), LOAD(BPF_DW, 0, 6, 0), EXIT());
	uint64_t runs = 0;

	put(map, 0, entry_of(program));
	cr_expect_eq(run_plain(program, &runs), 34u);
	runs = 0;
	cr_expect_eq(run_plain(program, &runs), 34u, "the next run counts from zero");
	shunt_bpf_close(program);
	shunt_map_put(map);
}

Test(bpf_tail, the_count_is_kept_through_several_programs)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *one = OPEN(SHUNT_BPF_CONTEXT_NONE, COUNT(), TAIL_CALL(map, 1), LOAD(BPF_DW, 0, 6, 0), EXIT());
	struct shunt_bpf_object *two = OPEN(SHUNT_BPF_CONTEXT_NONE, COUNT(), TAIL_CALL(map, 0), LOAD(BPF_DW, 0, 6, 0), EXIT());
	uint64_t runs = 0;

	put(map, 0, entry_of(one));
	put(map, 1, entry_of(two));
	cr_expect_eq(run_plain(one, &runs), 34u);
	shunt_bpf_close(one);
	shunt_bpf_close(two);
	shunt_map_put(map);
}

Test(bpf_tail, a_tail_call_in_a_subprogram_returns_to_its_caller_and_shares_the_limit)
{
	struct shunt_map *map = make_programs();
	/* main: count; sub(); sub(); return 5. sub: tail call main. Without a shared count this runs 2^33 times. */
	struct shunt_bpf_object *program = OPEN(SHUNT_BPF_CONTEXT_NONE, COUNT(), MOV_REG(1, 6), CALL_SUB(4), MOV_REG(1, 6), CALL_SUB(2),
						MOV_IMM(0, 5), EXIT(), /* sub: */ MOV_REG(6, 1), TAIL_CALL(map, 0), MOV_IMM(0, 7), EXIT());
	uint64_t runs = 0;

	put(map, 0, entry_of(program));
	cr_expect_eq(run_plain(program, &runs), 5u);
	cr_expect_eq(runs, 34u);
	shunt_bpf_close(program);
	shunt_map_put(map);
}

Test(bpf_tail, a_failed_lookup_does_not_count)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *program = OPEN(SHUNT_BPF_CONTEXT_NONE, COUNT(), TAIL_CALL(map, 5), TAIL_CALL(map, 0), LOAD(BPF_DW, 0, 6, 0), EXIT());
	uint64_t runs = 0;

	put(map, 0, entry_of(program));
	cr_expect_eq(run_plain(program, &runs), 34u);
	shunt_bpf_close(program);
	shunt_map_put(map);
}

Test(bpf_tail, xdp_programs_pass_the_context_and_its_redirection)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *callee = OPEN(SHUNT_BPF_CONTEXT_XDP, LOAD(BPF_W, 1, 1, 16), MOV_IMM(2, 0), CALL(23), EXIT());
	struct shunt_bpf_object *caller = OPEN(SHUNT_BPF_CONTEXT_XDP, MOV_REG(6, 1), MOV_IMM(1, 3), MOV_IMM(2, 0), CALL(23), TAIL_CALL(map, 0), EXIT());
	struct shunt_xdp_ctx ctx = { .rx_queue_index = 42 };

	put(map, 0, entry_of(callee));
	shunt_read_begin();
	cr_expect_eq(((bpf_xdp_fn *)(uintptr_t)entry_of(caller))(&ctx), SHUNT_XDP_REDIRECT);
	shunt_read_end();
	cr_expect_eq(ctx.redirect_index, 42u, "the last choice counts");
	cr_expect_null(ctx.redirect_map);
	shunt_bpf_close(caller);
	shunt_bpf_close(callee);
	shunt_map_put(map);
}

static uint64_t (*inner_entry)(void *mem, size_t len);
static uint64_t inner_runs;

static uint64_t run_inner(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	return inner_entry(&inner_runs, sizeof(inner_runs));
}

Test(bpf_tail, a_program_run_by_a_helper_of_the_host_has_a_chain_of_its_own)
{
	struct shunt_map *map = make_programs();
	struct shunt_bpf_object *inner = OPEN(SHUNT_BPF_CONTEXT_NONE, COUNT(), TAIL_CALL(map, 0), LOAD(BPF_DW, 0, 6, 0), EXIT());
	const struct bpf_insn with_helper[] = { CALL(3000), EXIT() };
	const struct bpf_insn caller_insns[] = { MOV_REG(6, 1), TAIL_CALL(map, 1), MOV_IMM(0, 0), EXIT() };
	struct shunt_bpf_options options = { .jit = bpf_run_jit() };
	struct shunt_bpf_object *middle, *outer;
	uint64_t unused = 0;

	cr_assert_eq(shunt_bpf_open_insns(with_helper, NR(with_helper), SHUNT_BPF_CONTEXT_NONE, &options, &middle), 0);
	cr_assert_eq(shunt_bpf_set_helper(middle, 3000, run_inner), 0);
	cr_assert_eq(shunt_bpf_compile(middle), 0, "%s", shunt_error());
	outer = bpf_run_open(caller_insns, NR(caller_insns), SHUNT_BPF_CONTEXT_NONE);
	inner_entry = (bpf_plain_fn *)(uintptr_t)entry_of(inner);
	put(map, 0, entry_of(inner));
	put(map, 1, entry_of(middle));
	/* The helper runs in a program that a tail call runs: that one's count must not be taken over by the inner one. */
	cr_expect_eq(run_plain(outer, &unused), 34u);
	cr_expect_eq(inner_runs, 34u);
	shunt_bpf_close(outer);
	shunt_bpf_close(middle);
	shunt_bpf_close(inner);
	shunt_map_put(map);
}
